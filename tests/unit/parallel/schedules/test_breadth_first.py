from __future__ import annotations

from clustersim.parallel.schedules.breadth_first import breadth_first
from clustersim.parallel.schedules.order import backward, forward


def test_all_micro_batches_go_through_a_chunk_before_the_next() -> None:
    there = (forward(0, 0), forward(1, 0), forward(0, 1), forward(1, 1))
    back = (backward(0, 1), backward(1, 1), backward(0, 0), backward(1, 0))

    assert breadth_first(2, 2, 2) == ((*there, *back),) * 2
