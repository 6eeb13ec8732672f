from __future__ import annotations

import numpy as np
import pytest

from clustersim.program.program import ProgramBuilder
from clustersim.program.tasks import Compute, Lane
from clustersim.trace.timeline import RankClass

COMPUTE = Lane(rank_class=0, stream="compute")
SEND = Lane(rank_class=0, stream="send")
OTHER = Lane(rank_class=1, stream="compute")
WORK = Compute(name="F", phase="forward", blocks=())


def after(builder: ProgramBuilder) -> list[tuple[int, ...]]:
    return [task.after for task in builder.build(()).tasks]


def test_tasks_of_a_lane_run_in_the_order_in_which_they_were_added() -> None:
    builder = ProgramBuilder()
    for number in range(3):
        builder.add(("F", number), WORK, [COMPUTE])

    assert after(builder) == [(), (0,), (1,)]


def test_lanes_do_not_wait_for_each_other() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE])
    builder.add(("S",), WORK, [SEND])
    builder.add(("G",), WORK, [OTHER])

    assert after(builder) == [(), (), ()]


def test_a_task_on_two_lanes_follows_and_holds_up_both() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE])
    builder.add(("G",), WORK, [OTHER])
    builder.add(("both",), WORK, [COMPUTE, OTHER])
    builder.add(("H",), WORK, [OTHER])

    assert after(builder) == [(), (), (0, 1), (2,)]


def test_a_task_waits_for_what_it_names() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE])
    builder.add(("S",), WORK, [SEND], after=[("F",)])

    assert after(builder) == [(), (0,)]


def test_a_task_may_wait_for_one_that_is_added_later() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE], after=[("S",)])
    builder.add(("S",), WORK, [SEND])

    assert after(builder) == [(1,), ()]


def test_what_is_named_twice_is_waited_for_once() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE])
    builder.add(("G",), WORK, [COMPUTE], after=[("F",), ("F",)])

    assert after(builder) == [(), (0,)]


def test_a_task_on_two_lanes_with_one_predecessor_waits_for_it_once() -> None:
    builder = ProgramBuilder()
    builder.add(("both",), WORK, [COMPUTE, OTHER])
    builder.add(("again",), WORK, [COMPUTE, OTHER])

    assert after(builder) == [(), (0,)]


def test_the_last_task_of_a_lane_is_known() -> None:
    builder = ProgramBuilder()
    assert builder.last(COMPUTE) == ()

    builder.add(("F",), WORK, [COMPUTE, SEND])
    builder.add(("G",), WORK, [COMPUTE])

    assert builder.last(COMPUTE) == (("G",),)
    assert builder.last(SEND) == (("F",),)


def test_labels_and_lanes_reach_the_tasks() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE, SEND], label=(3, 1))
    classes = (RankClass(name="all ranks", stage=0, representative_rank=0, ranks=np.arange(8)),)

    program = builder.build(classes)

    (task,) = program.tasks
    assert (task.action, task.lanes, task.micro_batch, task.chunk) == (WORK, (COMPUTE, SEND), 3, 1)
    assert program.rank_classes == classes


def test_two_tasks_cannot_have_one_name() -> None:
    builder = ProgramBuilder()
    builder.add(("F", 1), WORK, [COMPUTE])

    with pytest.raises(ValueError, match=r"two tasks are named \('F', 1\)"):
        builder.add(("F", 1), WORK, [SEND])


def test_a_task_cannot_wait_for_one_that_never_comes() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, [COMPUTE], after=[("G", 2)])

    with pytest.raises(ValueError, match=r"\('F',\) waits for \('G', 2\), which is not in the program"):
        builder.build(())


def test_lanes_can_come_from_a_generator() -> None:
    builder = ProgramBuilder()
    builder.add(("F",), WORK, (lane for lane in (COMPUTE, SEND)))

    assert builder.build(()).tasks[0].lanes == (COMPUTE, SEND)


def test_an_empty_program_is_a_program() -> None:
    assert ProgramBuilder().build(()).tasks == ()
