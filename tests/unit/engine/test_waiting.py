"""Waiting time, and the class that is charged with it."""

from __future__ import annotations

import pytest

from clustersim.engine.policies import Asynchronous
from clustersim.engine.steps import replay_steps
from clustersim.program.program import Program
from clustersim.program.tasks import Lane, Task, Work
from clustersim.trace.timeline import Timeline
from clustersim.workloads.operators import Recorded
from tests.unit.engine.factories import communicate, compute, group_of, joined, make_machine, paced, program, task, transfer, work, workers


def loader(seconds: float, rank_class: int) -> Task:
    read = Work(name="load", phase="load", kernels=(Recorded(seconds),))
    return task(compute(read, phase="load", name="load"), rank_class=rank_class, stream="loader")


def pipeline(*seconds: float, n_micro_batches: int = 4) -> Program:
    """Return a pipeline forwards and nothing else, joined at its end by a collective of the first and the last stage."""
    tasks: list[Task] = []
    for micro_batch in range(n_micro_batches):
        for stage, each in enumerate(seconds):
            before = [len(tasks) - 1] if stage else []
            if micro_batch:
                before.append(2 * len(seconds) * (micro_batch - 1) + 2 * stage)
            tasks.append(task(compute(work(each)), *before, rank_class=stage))
            lanes = (Lane(rank_class=stage, stream="send"), Lane(rank_class=min(stage + 1, len(seconds) - 1), stream="receive"))
            tasks.append(Task(action=transfer((2 * stage, 2 * stage + 1), size_bytes=0.0), lanes=lanes, after=(len(tasks) - 1,)))
    tied = communicate(group_of((0, 8 // len(seconds) * len(seconds) - 1)), 0.0)
    lanes = tuple(Lane(rank_class=each, stream="dp") for each in (0, len(seconds) - 1))
    return program(*tasks, Task(action=tied, lanes=lanes, after=(len(tasks) - 2 * len(seconds), len(tasks) - 2)), n_classes=len(seconds))


def waited_s(of: Program | Timeline, n_steps: int = 1) -> list[float]:
    timeline = of if isinstance(of, Timeline) else replay_steps(of, make_machine(), n_steps=n_steps)[0]
    assert timeline.steps is not None
    return [each.waited_s for each in timeline.steps.classes]


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_pipeline_waits_for_the_stage_whose_passes_take_longest(slow: int, n_steps: int) -> None:
    seconds = [1.0] * 4
    seconds[slow] = 2.0

    waited = waited_s(pipeline(*seconds), n_steps)

    # Each of the three others computes 4 s less.
    assert waited == pytest.approx([n_steps * 3.0 if each == slow else 0.0 for each in range(4)], rel=1e-9)


def test_a_pipeline_of_equal_stages_waits_for_nobody() -> None:
    assert waited_s(pipeline(1.0, 1.0, 1.0, 1.0), 2) == [0.0] * 4


def test_pipelines_that_nothing_connects_do_not_wait_for_each_other() -> None:
    one = pipeline(1.0, 1.0)
    moved = [
        each._replace(
            lanes=tuple(lane._replace(rank_class=2 + lane.rank_class) for lane in each.lanes),
            after=tuple(len(one.tasks) + earlier for earlier in each.after),
        )
        for each in one.tasks
    ]
    two = program(*one.tasks, *moved, n_classes=4)
    slow = paced(make_machine(), 1.0, 1.0, 2.0, 2.0)

    timeline, _ = replay_steps(two, slow, n_steps=2, policy=Asynchronous())

    assert waited_s(timeline) == [0.0] * 4


def test_where_nothing_joins_classes_they_wait_at_the_end_of_the_last_step() -> None:
    assert waited_s(workers(1.0, 3.0)) == pytest.approx([0.0, 1.0], rel=1e-12)
    assert waited_s(workers(1.0, 3.0), 2) == pytest.approx([0.0, 2.0], rel=1e-12)


def test_what_comes_behind_the_last_joint_is_waited_for_too() -> None:
    of = joined(1.0, 1.0)
    optimizers = [task(compute(work(seconds)), 2, rank_class=each) for each, seconds in enumerate((4.0, 2.0))]

    assert waited_s(program(*of.tasks, *optimizers, n_classes=2)) == pytest.approx([1.0, 0.0], rel=1e-12)


def test_who_goes_at_its_own_pace_is_not_waited_for_at_the_end() -> None:
    assert waited_s(replay_steps(workers(1.0, 3.0), make_machine(), n_steps=2, policy=Asynchronous())[0]) == [0.0, 0.0]


def test_reading_the_next_batch_hides_no_waiting() -> None:
    of = joined(1.0, 3.0)

    beside = program(*of.tasks, loader(2.9, 0), loader(2.9, 1), n_classes=2)

    assert waited_s(of, 2) == pytest.approx([0.0, 2.0], rel=1e-12)
    assert waited_s(beside, 2) == pytest.approx([0.0, 2.0], rel=1e-12)


def test_where_all_wait_for_the_loader_nobody_is_to_blame() -> None:
    beside = program(*joined(1.0, 3.0).tasks, loader(3.5, 0), loader(3.5, 1), n_classes=2)

    assert waited_s(beside, 2) == [0.0, 0.0]


def test_of_stages_that_take_as_long_the_first_is_named_whatever_sums_are_rounded_to() -> None:
    slow = [1.0, 1.0 + 4e-15]

    assert [each > 0.0 for each in waited_s(pipeline(0.1, *slow))] == [False, True, False]
    assert [each > 0.0 for each in waited_s(pipeline(0.1, *slow[::-1]))] == [False, True, False]


def test_of_classes_that_arrive_together_the_first_is_named_whatever_sums_are_rounded_to() -> None:
    assert [each > 0.0 for each in waited_s(joined(0.5, 1.0, 1.0 + 4e-15), 2)] == [False, True, False]
