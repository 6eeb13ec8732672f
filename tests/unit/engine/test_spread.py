"""Chaotic steps, and those that change no more than their computation."""

from __future__ import annotations

import pytest

import clustersim
from clustersim.engine.replay import Replay
from clustersim.engine.simulate import prepare
from clustersim.engine.spread import CHAOTIC, VARIATION, spread_of
from clustersim.program.tasks import Task
from tests.property.test_folding import CONTENDED
from tests.unit.engine.factories import compute, make_machine, program, replay_of, task, transfer, work

SEND = 420e9
"""Bytes of a send that takes a second alone."""
BESIDE: tuple[Task, ...] = (
    task(compute(work(0.1))),
    task(transfer((0, 4), size_bytes=SEND), 0, stream="send"),
    task(transfer((0, 5), size_bytes=SEND), stream="other"),
    task(compute(work(1.0)), 1),
)
"""Two sends that share the way up of rank 0 from 0.1 s on."""


def replayed(*tasks: Task) -> Replay:
    return prepare(program(*tasks), make_machine(), (), others=()).replayed().first


def test_a_step_without_contention_is_not_replayed_again() -> None:
    replay = replay_of(make_machine(), program(task(compute(work(1.0))))).run()

    assert spread_of(replay) == 0.0


def test_a_step_in_which_two_sends_meet_varies_no_more_than_its_computation() -> None:
    replay = replayed(*BESIDE)

    assert replay.contended == {1, 2}
    assert replay.end_s() == pytest.approx(0.1 + 1.9 + 1.0)
    # The sends end after 2 s of the link together, whenever the second starts; the rest is 1.1 s of computation at most.
    assert 0.0 < spread_of(replay) <= VARIATION * 1.1 / 3.0


def test_a_contended_step_that_is_not_chaotic_has_no_flag() -> None:
    result = clustersim.run("mixtral-8x7b-ep")

    assert 0.0 < result.metrics.engine.spread <= VARIATION
    assert "chaotic_step" not in {flag.code for flag in result.flags}


@pytest.mark.slow
def test_a_chaotic_step_says_by_how_much_it_varies() -> None:
    result = clustersim.run(CONTENDED)

    assert result.metrics.engine.spread > CHAOTIC
    (flag,) = (flag for flag in result.flags if flag.code == "chaotic_step")
    assert flag.message.startswith("contention makes the step chaotic: when computation varies by 0.0001 %, the step varies by ")


@pytest.mark.slow
def test_the_spread_of_a_chaotic_step_is_real() -> None:
    usual, slower = (
        clustersim.run(CONTENDED, set=[f"cluster.stragglers=[{{ranks: 5, slowdown: {slowdown}}}]"]).step_time_s
        for slowdown in (1.0 + VARIATION, 1.0 + 2 * VARIATION)
    )

    assert abs(slower / usual - 1.0) > CHAOTIC
