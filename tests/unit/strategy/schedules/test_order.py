from __future__ import annotations

import pytest

from clustersim.strategy.schedules import SCHEDULES, stage_orders
from clustersim.strategy.schedules.order import Pass, backward, forward, peak_in_flight


def test_a_pass_is_known_by_direction_micro_batch_and_chunk() -> None:
    assert forward(3, 1) == Pass(backward=False, micro_batch=3, chunk=1)
    assert backward(3) == Pass(backward=True, micro_batch=3, chunk=0)


def test_nothing_is_in_flight_where_nothing_runs() -> None:
    assert peak_in_flight((), [1.0]) == 0.0


def test_the_peak_counts_what_each_chunk_keeps() -> None:
    order = (forward(0, 0), forward(0, 1), backward(0, 1), backward(0, 0))

    assert peak_in_flight(order, [3.0, 5.0]) == 8.0


def test_what_a_backward_pass_frees_is_free_for_the_next_forward_pass() -> None:
    assert peak_in_flight((forward(0), backward(0), forward(1), backward(1)), [2.0]) == 2.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_of_the_table_gives_each_stage_an_order(name: str) -> None:
    orders = SCHEDULES[name](4, 8, 1)

    assert [len(order) for order in orders] == [16] * 4


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_lowering_and_memory_are_given_the_order_of_the_schedule(schedule: str) -> None:
    assert stage_orders(schedule, 2, 4, 2) == SCHEDULES[schedule](2, 4, 2)
    assert stage_orders(schedule, 2, 4, 2) is stage_orders(schedule, 2, 4, 2)
