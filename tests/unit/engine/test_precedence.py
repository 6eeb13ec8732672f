from __future__ import annotations

import pytest

from clustersim.engine.precedence import Precedence, deadlock_message, task_name
from clustersim.engine.program_graph import Graph
from clustersim.errors import DeadlockError
from clustersim.program.tasks import Lane, Task
from tests.unit.engine.factories import collective, communicate, compute, group_of, program, task, transfer, work

GROUP = group_of((0, 1, 2, 3))
PASS = compute(collective(GROUP, 1.0))
SEND = transfer((0, 1), size_bytes=1.0)


def test_a_circle_is_found_before_the_replay() -> None:
    circle = program(task(PASS, 1), task(SEND, 0, stream="send"))

    with pytest.raises(DeadlockError, match="F on stage 0 waits for send on stage 0"):
        Precedence.of(Graph(circle))


def test_a_deadlock_names_who_waits_for_what() -> None:
    of = program(task(PASS), task(PASS, 0, 2), task(SEND, 1, stream="send"))

    message = deadlock_message(of, [True, False, False])

    assert message == (
        "2 of 3 tasks wait for each other for ever, the first on rank 0:\n"
        "  F on stage 0 waits for send on stage 0 (send)\n"
        "  send on stage 0 (send) waits for F on stage 0"
    )


def test_a_deadlock_of_many_names_the_first_few() -> None:
    of = program(*(task(PASS, (index + 1) % 20) for index in range(20)))

    lines = deadlock_message(of, [False] * 20).splitlines()

    assert lines[0].startswith("20 of 20 tasks")
    assert len(lines) == 1 + 6 + 1
    assert lines[-1] == "  and 14 more"


def test_six_waiting_tasks_are_all_named() -> None:
    of = program(*(task(PASS, (index + 1) % 6) for index in range(6)))

    assert len(deadlock_message(of, [False] * 6).splitlines()) == 1 + 6


def test_a_task_is_named_after_micro_batch_class_and_stream() -> None:
    lanes = (Lane(rank_class=1, stream="send_forward"), Lane(rank_class=0, stream="recv_forward"))
    of = program(
        Task(action=PASS, lanes=(Lane(rank_class=1, stream="compute"),), after=(), micro_batch=5),
        Task(action=SEND, lanes=lanes, after=(), micro_batch=0),
        Task(action=communicate(GROUP, 1.0), lanes=(Lane(rank_class=0, stream="dp"),), after=()),
        n_classes=2,
    )

    assert [task_name(of, index) for index in range(3)] == [
        "F of micro-batch 5 on stage 1",
        "send of micro-batch 0 on stage 1 (send_forward)",
        "reduce on stage 0 (dp)",
    ]


def test_a_program_without_traffic_has_an_order_too() -> None:
    assert Precedence.of(Graph(program(task(compute(work(1.0)))))).order().before.tolist() == [[-1]]


def test_a_task_that_waits_for_no_other_waits_for_its_ranks() -> None:
    of = program(task(compute(work(1.0), name="done")), task(compute(work(1.0), name="late"), 0))

    assert deadlock_message(of, [True, False]) == (
        "1 of 2 tasks wait for each other for ever, the first on rank 0:\n  late on stage 0 waits for its ranks to begin the step"
    )
