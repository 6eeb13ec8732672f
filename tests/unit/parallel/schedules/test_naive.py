from __future__ import annotations

from clustersim.parallel.schedules.naive import naive
from clustersim.parallel.schedules.order import backward, forward


def test_each_micro_batch_goes_forward_and_back_before_the_next_one_starts() -> None:
    orders = naive(2, 3, 1)

    assert orders == ((forward(0), backward(0), forward(1), backward(1), forward(2), backward(2)),) * 2
