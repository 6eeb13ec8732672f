"""Orders of passes that only repeat others."""

from __future__ import annotations

import pytest

import clustersim
from clustersim.apps.run.repeating import order_repeats
from clustersim.engine.repetition import MicroBatchPaths
from clustersim.parallel.schedules import SCHEDULES

ONE = MicroBatchPaths(first=(0,), n_micro_batches=1)


def test_passes_in_turn_repeat() -> None:
    (few,), (many,) = (SCHEDULES["naive"].orders(1, n, 1) for n in (4, 9))

    assert order_repeats(few, many, (2, 4), ways=ONE, times=5)


@pytest.mark.parametrize("passes", [(2, 5), (1, 2), (0, 6)])
def test_a_stretch_of_other_passes_does_not(passes: tuple[int, int]) -> None:
    (few,), (many,) = (SCHEDULES["naive"].orders(1, n, 1) for n in (4, 9))

    assert not order_repeats(few, many, passes, ways=ONE, times=5)


def test_an_order_that_changes_behind_the_stretch_does_not() -> None:
    (few,), (many,) = (SCHEDULES["naive"].orders(1, n, 1) for n in (4, 9))
    changed = (*many[:-2], many[-1], many[-2])

    assert not order_repeats(few, changed, (2, 4), ways=ONE, times=5)


def test_two_ways_repeat_side_by_side() -> None:
    few, many = (SCHEDULES["dualpipe"].orders(2, n, 1)[0] for n in (12, 20))
    found = [
        (first, last)
        for first in range(len(few))
        for last in range(first + 1, len(few) + 1)
        if order_repeats(few, many, (first, last), ways=MicroBatchPaths(first=(0, 6), n_micro_batches=1), times=4)
    ]

    assert found
    assert {last - first for first, last in found} == {(len(many) - len(few)) // 4}


@pytest.mark.slow
def test_micro_batches_that_go_both_ways_repeat_as_early_as_those_that_go_one() -> None:
    repeated, whole = (clustersim.run("deepseek-v3-2048-h800", repeat=repeat) for repeat in (True, False))

    assert "repeat" in repeated.metrics.engine.passes
    assert repeated.step_time_s == whole.step_time_s
