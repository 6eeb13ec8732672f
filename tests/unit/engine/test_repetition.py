"""A stretch of time that is like the one before it, and what only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from clustersim.engine.repetition import MicroBatchPaths, RepeatedWindow, carried_within, window_of
from clustersim.engine.replay import Replay
from clustersim.program.program import Program, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Lane
from clustersim.trace.timeline import RankClass
from tests.unit.engine.factories import communicate, compute, group_of, transfer, work
from tests.unit.engine.test_collapse import B, settled

LANE = Lane(0, COMPUTE_STREAM)
FORWARD, BACKWARD = compute(work(1.0), name="F"), compute(work(2.0), name="B", phase="backward")
SEND = transfer((0, 4), size_bytes=0.2 * B)
ONE = MicroBatchPaths(first=(0,), n_micro_batches=1)
CLASSES = (RankClass(name="stage 0", stage=0, representative_rank=0, ranks=np.arange(8)),)


def accumulated(n_micro_batches: int, *, first_s: float = 0.5) -> ProgramBuilder:
    """Return forward and backward passes in turn, behind something that is done once."""
    builder = ProgramBuilder()
    builder.add(("once",), compute(work(first_s), phase="optimizer", name="once"), [LANE])
    for number in range(n_micro_batches):
        builder.add(("F", number), FORWARD, [LANE], label=(number, 0))
        builder.add(("B", number), BACKWARD, [LANE], label=(number, 0))
    return builder


def replayed(builder: ProgramBuilder) -> Replay:
    return settled(builder.build(CLASSES))


def test_passes_that_come_again_are_found_with_their_period() -> None:
    window = window_of(replayed(accumulated(5)), ONE)

    assert window is not None
    assert window.end_s - window.start_s == pytest.approx(3.0, rel=1e-12)
    ((before, after),) = window.n_passes
    assert after - before == 2


def test_two_periods_are_too_few_to_be_sure() -> None:
    assert window_of(replayed(accumulated(2)), ONE) is None


def test_passes_of_other_lengths_are_no_repetition() -> None:
    builder = ProgramBuilder()
    for number in range(6):
        builder.add(("F", number), compute(work(1.0 + 0.1 * number)), [LANE], label=(number, 0))
        builder.add(("B", number), BACKWARD, [LANE], label=(number, 0))

    assert window_of(replayed(builder), ONE) is None


def test_forward_passes_alone_keep_more_and_more_and_are_no_repetition() -> None:
    builder = ProgramBuilder()
    for number in range(8):
        builder.add(("F", number), FORWARD, [LANE], label=(number, 0))
    for number in range(8):
        builder.add(("B", number), BACKWARD, [LANE], label=(number, 0))

    assert window_of(replayed(builder), ONE) is None


def test_what_belongs_to_no_micro_batch_is_no_part_of_a_repetition() -> None:
    builder = accumulated(5)
    for number in range(5):
        builder.add(("beside", number), transfer((0, 4), size_bytes=B), [Lane(0, "beside")], after=[("F", number)])

    assert window_of(replayed(builder), ONE) is None


def test_what_lasts_longer_than_a_period_is_no_repetition() -> None:
    builder = accumulated(9)
    builder.add(("long",), compute(work(40.0), phase="load", name="load"), [Lane(0, "loader")])

    assert window_of(replayed(builder), ONE) is None


def crowded(n_micro_batches: int) -> ProgramBuilder:
    """Return passes beside which two transfers meet on a link."""
    builder = accumulated(n_micro_batches)
    for number in range(n_micro_batches):
        for stream in ("one", "other"):
            builder.add((stream, number), SEND, [Lane(0, stream)], after=[("F", number)], label=(number, 0))
    return builder


def seconds_of(replay: Replay, window: RepeatedWindow) -> Sequence[float]:
    return sorted(carried_within(replay, window.start_s, window.end_s).seconds.values())


def test_flows_that_meet_again_and_again_are_a_repetition_and_are_on_the_links_as_long_each_time() -> None:
    replay = replayed(crowded(6))
    window = window_of(replay, ONE)

    assert replay.contended
    assert window is not None
    # Two transfers of a fifth of a second each share the link, of which 0.8 can be used.
    assert sum(seconds_of(replay, window)) == pytest.approx(0.4 / 0.8, rel=1e-9)


def test_what_flies_alone_is_on_the_links_as_often_as_it_starts() -> None:
    builder = accumulated(6)
    reduce = communicate(group_of((0, 4)), B)
    for number in range(6):
        builder.add(("reduce", number), reduce, [Lane(0, "dp")], after=[("B", number)], label=(number, 0))
    replay = replayed(builder)
    window = window_of(replay, ONE)

    assert window is not None
    # A second at full rate, of which 0.8 can be used.
    assert seconds_of(replay, window) == [pytest.approx(1.0 / 0.8, rel=1e-9)]


def test_ways_are_told_apart_by_their_first_micro_batch() -> None:
    builder = ProgramBuilder()
    for number in range(5):
        for way in (0, 5):
            builder.add(("F", way + number), FORWARD, [LANE], label=(way + number, way // 5))
            builder.add(("B", way + number), BACKWARD, [LANE], label=(way + number, way // 5))

    window = window_of(replayed(builder), MicroBatchPaths(first=(0, 5), n_micro_batches=1))

    assert window is not None
    assert window.end_s - window.start_s == pytest.approx(6.0, rel=1e-12)


def test_a_program_without_passes_has_none() -> None:
    assert window_of(settled(Program(rank_classes=CLASSES, tasks=())), ONE) is None
