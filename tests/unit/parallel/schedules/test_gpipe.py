from __future__ import annotations

from clustersim.parallel.schedules.gpipe import gpipe
from clustersim.parallel.schedules.order import backward, forward


def test_all_forward_passes_come_before_all_backward_passes_last_in_first_out() -> None:
    orders = gpipe(2, 3, 1)

    assert orders == ((forward(0), forward(1), forward(2), backward(2), backward(1), backward(0)),) * 2
