from __future__ import annotations

from clustersim.parallel.schedules.one_f_one_b import one_f_one_b
from clustersim.parallel.schedules.order import backward, forward


def test_the_last_stage_alternates_from_the_start() -> None:
    assert one_f_one_b(3, 2, 1)[2] == (forward(0), backward(0), forward(1), backward(1))


def test_a_stage_warms_up_for_as_many_passes_as_stages_follow() -> None:
    assert one_f_one_b(3, 4, 1)[0] == (
        *(forward(0), forward(1)),
        *(forward(2), backward(0), forward(3), backward(1)),
        *(backward(2), backward(3)),
    )


def test_fewer_micro_batches_than_stages_all_go_forward_first() -> None:
    assert one_f_one_b(4, 2, 1)[0] == (forward(0), forward(1), backward(0), backward(1))
