from __future__ import annotations

import pytest

from clustersim.parallel.schedules.gpipe import gpipe
from clustersim.parallel.schedules.order import backward, forward
from tests.unit.parallel.factories import peak_in_flight


def test_all_forward_passes_come_before_all_backward_passes_last_in_first_out() -> None:
    orders = gpipe(2, 3, 1)

    assert orders == ((forward(0), forward(1), forward(2), backward(2), backward(1), backward(0)),) * 2


@pytest.mark.parametrize("n_micro_batches", [1, 4, 9])
def test_all_micro_batches_are_in_flight_on_every_stage(n_micro_batches: int) -> None:
    assert [peak_in_flight(order, [1.0]) for order in gpipe(4, n_micro_batches, 1)] == [n_micro_batches] * 4
