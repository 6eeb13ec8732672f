"""Tasks that could meet, and tasks that did."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clustersim.engine.contention import Contention
from clustersim.engine.program_graph import Graph
from clustersim.program.tasks import Task
from tests.unit.engine.factories import communicate, group_of, laid_out, make_machine, program, task, transfer

DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")
SEND = transfer((0, 4), size_bytes=1e9)
BACK = transfer((4, 0), size_bytes=1e9, name="back")


def contention(*tasks: Task, n_classes: int = 1, strangers: Sequence[int] = ()) -> Contention:
    of = program(*tasks, n_classes=n_classes)
    traffic, network, _, _ = laid_out(make_machine(), of)
    return traffic.contention(Graph(of), network.wiring.meets(), strangers)


def test_transfers_of_one_lane_never_meet() -> None:
    assert contention(task(SEND), task(SEND, 0)).all() == frozenset()


def test_transfers_the_other_way_use_other_links() -> None:
    assert contention(task(SEND, stream="one"), task(BACK, stream="other")).all() == frozenset()


def test_transfers_of_two_lanes_on_one_link_can_meet() -> None:
    assert contention(task(SEND, stream="one"), task(SEND, stream="other")).all() == {0, 1}


def test_what_shares_a_link_with_strangers_can_always_meet_them() -> None:
    assert contention(task(SEND), strangers=[0]).all() == {0}


@pytest.mark.parametrize(("second_s", "expected"), [(1.0, set[int]()), (0.999, {0, 1})])
def test_a_meeting_is_a_moment_at_which_both_are_in_progress(second_s: float, expected: set[int]) -> None:
    found = contention(task(SEND, stream="one"), task(communicate(DP, 1e9), stream="other"))

    assert found.meetings([0.0, second_s], [1.0, 2.0]) == expected


def test_where_much_of_what_is_alike_meets_others_all_of_it_does() -> None:
    few = [task(SEND, *range(place)[-1:], stream="one") for place in range(4)]
    found = contention(*few, task(SEND, stream="other"))

    assert found.meetings([0.0, 1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, 4.0, 1.0]) == {0, 1, 2, 3, 4}
