from __future__ import annotations

import pytest

from clustersim.engine.precedence import Precedence, contended_passes, deadlock_message, task_name
from clustersim.errors import DeadlockError
from clustersim.program.program import Program
from clustersim.program.tasks import Lane, Task
from tests.unit.engine.factories import collective, communicate, compute, group_of, program, task, transfer, work

GROUP = group_of((0, 1, 2, 3))
PASS = compute(collective(GROUP, 1.0))
SEND = transfer((0, 1), size_bytes=1.0)
TP = 3
"""A kind of flow inside passes."""


def one_lane(*after_of_send: int) -> Program:
    """Return three passes in a row and a transfer, task 3, that waits for some of them."""
    return program(task(PASS), task(PASS, 0), task(PASS, 1), task(SEND, *after_of_send, stream="send"))


def met(of: Program, rivals: list[tuple[int, list[int]]], inline: dict[int, list[int]] | None = None) -> frozenset[int]:
    return contended_passes(of, rivals, {0: [TP], 1: [TP], 2: [TP]} if inline is None else inline)


def test_passes_are_counted_along_their_lane() -> None:
    order = Precedence.of(one_lane(0)).order()

    assert order.place.tolist() == [0, 1, 2, -1]


def test_the_order_says_what_must_have_ended_and_what_must_wait() -> None:
    of = program(task(PASS), task(SEND, 0, stream="send"), task(PASS, 0), task(PASS, 1, 2))

    order = Precedence.of(of).order()

    assert order.before[:, 0].tolist() == [-1, 0, 0, 1]
    assert order.behind[:, 0].tolist() == [1, 2, 2, len(of.tasks)]


def test_order_passes_from_class_to_class() -> None:
    first, sent, second = task(PASS), task(SEND, 0, stream="send"), task(PASS, 1, rank_class=1)

    order = Precedence.of(program(first, sent, second, n_classes=2)).order()

    assert order.before.tolist() == [[-1, -1], [0, -1], [0, -1]]
    assert order.behind.tolist() == [[3, 0], [3, 0], [3, 3]]


def test_order_does_not_depend_on_the_order_of_writing() -> None:
    # The transfer is written down before the pass that it waits for.
    order = Precedence.of(program(task(SEND, 1, stream="send"), task(PASS), task(PASS, 1, 0))).order()

    assert order.before[0, 0] == 0
    assert order.behind[0, 0] == 1


def test_a_transfer_meets_the_passes_that_it_need_not_wait_for() -> None:
    assert met(one_lane(), [(3, [TP])]) == {0, 1, 2}
    assert met(one_lane(0), [(3, [TP])]) == {1, 2}
    assert met(one_lane(2), [(3, [TP])]) == frozenset()


def test_a_pass_that_waits_for_a_transfer_does_not_meet_it() -> None:
    of = program(task(PASS), task(SEND, 0, stream="send"), task(PASS, 0), task(PASS, 1, 2))

    assert contended_passes(of, [(1, [TP])], {0: [TP], 2: [TP], 3: [TP]}) == {2}


def test_a_transfer_that_shares_no_links_meets_nobody() -> None:
    assert met(one_lane(), [(3, [])]) == frozenset()


def test_only_passes_with_the_shared_flow_class_are_met() -> None:
    assert met(one_lane(), [(3, [TP])], {0: [TP], 1: [7], 2: [7, TP]}) == {0, 2}


def test_without_collectives_inside_nothing_is_met() -> None:
    assert met(one_lane(), [(3, [TP])], {}) == frozenset()


def test_several_rivals_add_up() -> None:
    of = program(task(PASS), task(SEND, stream="send"), task(PASS, 0, 1), task(SEND, 2, stream="send"), task(PASS, 2))

    assert contended_passes(of, [(1, [TP]), (3, [TP])], {0: [TP], 2: [TP], 4: [TP]}) == {0, 4}


def test_a_pass_is_not_its_own_rival() -> None:
    assert met(one_lane(), [(0, [TP]), (1, [TP]), (2, [TP])]) == frozenset()


def test_passes_of_two_classes_meet_unless_one_waits_for_the_other() -> None:
    beside = program(task(PASS), task(PASS, rank_class=1), n_classes=2)
    behind = program(task(PASS), task(PASS, 0, rank_class=1), n_classes=2)

    assert contended_passes(beside, [(0, [TP]), (1, [TP])], {0: [TP], 1: [TP]}) == {0, 1}
    assert contended_passes(behind, [(0, [TP]), (1, [TP])], {0: [TP], 1: [TP]}) == frozenset()


def test_a_circle_is_found_before_the_replay() -> None:
    circle = program(task(PASS, 1), task(SEND, 0, stream="send"))

    with pytest.raises(DeadlockError, match="F on stage 0 waits for send on stage 0"):
        Precedence.of(circle)


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
    assert Precedence.of(program(task(compute(work(1.0))))).order().before.tolist() == [[-1]]


def test_a_task_that_waits_for_no_other_waits_for_its_ranks() -> None:
    of = program(task(compute(work(1.0), name="done")), task(compute(work(1.0), name="late"), 0))

    assert deadlock_message(of, [True, False]) == (
        "1 of 2 tasks wait for each other for ever, the first on rank 0:\n  late on stage 0 waits for its ranks to begin the step"
    )
