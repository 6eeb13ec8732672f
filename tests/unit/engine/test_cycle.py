"""Steps that are like the one before, and steps that only look so."""

from __future__ import annotations

import pytest

from clustersim.engine.cycle import Cycle, cycle_of
from clustersim.engine.policies import Synchronous
from clustersim.engine.simulate import Rolling, prepare
from clustersim.engine.steps import _Run, replay_steps
from clustersim.program.program import Program
from tests.unit.engine.factories import communicate, compute, group_of, joined, make_machine, paced, program, task, work, workers
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

N_STEPS = 6


def found(of: Program, *, slowdowns: tuple[float, ...] = ()) -> Cycle | None:
    machine = paced(make_machine(), *slowdowns) if slowdowns else make_machine()
    jobs = prepare(of, machine, (), others=(), rolling=Rolling())
    jobs.first.clock.log = []
    _Run(replay=jobs.first, n_steps=N_STEPS).go(Synchronous(), jobs)
    return cycle_of(jobs.first, N_STEPS, times=1)


def test_steps_that_are_alike_are_found_with_their_period() -> None:
    cycle = found(joined(1.0, 3.0, size_bytes=SCALE_UP_BYTES_PER_S))

    assert cycle is not None
    assert cycle.period_s == pytest.approx(3.0 + 2.0 * 7 / 8, rel=1e-9)


def test_the_last_step_is_no_part_of_what_comes_again() -> None:
    cycle = found(joined(1.0, 3.0))

    assert cycle is not None
    assert cycle.step < N_STEPS - 1
    assert cycle.end_s < 3.0 * (N_STEPS - 1) + 1.0


def test_classes_that_drift_apart_never_repeat() -> None:
    assert found(workers(1.0, 3.0)) is None


def test_flows_that_shift_against_each_other_are_no_repetition() -> None:
    beside = communicate(group_of((0, 1, 2, 3), (4, 5, 6, 7)), SCALE_UP_BYTES_PER_S)
    pairs = [
        (task(compute(work(seconds)), rank_class=each), task(beside, 2 * each, rank_class=each)) for each, seconds in enumerate((1.0, 1.3))
    ]

    assert found(program(*pairs[0], *pairs[1], n_classes=2)) is None


def test_a_program_without_tasks_does_not_repeat() -> None:
    assert found(program()) is None


def test_steps_that_do_not_repeat_are_all_replayed() -> None:
    timeline, _ = replay_steps(workers(1.0, 3.0), make_machine(), n_steps=40)

    assert timeline.steps is not None
    assert timeline.steps.duration_s == pytest.approx(120.0, rel=1e-12)
    assert [each.last_end_s for each in timeline.steps.classes] == pytest.approx([40.0, 120.0], rel=1e-12)
    assert timeline.engine.events == 80


def test_a_class_without_tasks_makes_no_more_steps_when_the_others_repeat_theirs() -> None:
    timeline, _ = replay_steps(program(*joined(1.0, 2.0).tasks, n_classes=3, n_ranks=12), make_machine(n_nodes=2), n_steps=40)

    assert timeline.steps is not None
    assert [(each.steps, each.last_end_s) for each in timeline.steps.classes] == [
        (40, pytest.approx(80.0, rel=1e-12)),
        (40, pytest.approx(80.0, rel=1e-12)),
        (0, 0.0),
    ]
    assert [each.idle_s for each in timeline.steps.classes] == pytest.approx([40.0, 0.0, 80.0], rel=1e-12)
    assert timeline.steps.staleness == ((0, 80),)
    assert timeline.steps.applied == 80


def test_who_is_waited_for_is_waited_for_in_every_step_that_comes_again() -> None:
    timeline, _ = replay_steps(joined(1.0, 3.0), make_machine(), n_steps=40)

    assert timeline.engine.events < 40
    assert timeline.steps is not None
    assert [(each.waited_s, each.waited_steps) for each in timeline.steps.classes] == [(0.0, 0), (pytest.approx(40.0, rel=1e-12), 40)]
