"""ZB-H1 and ZB-H2 of four stages, as figures 3 of the paper have them."""

from __future__ import annotations

from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.schedules.zero_bubble import zb_h1, zb_h2


def kinds(order: StageOrder) -> str:
    return "".join(step.kind for step in order)


def test_the_first_stage_of_zb_h1_puts_nothing_off() -> None:
    assert kinds(zb_h1(4, 6, 1)[0]) == "FFFF" + "IWF" * 2 + "IW" * 4


def test_the_last_stage_of_zb_h1_puts_three_weight_gradients_off() -> None:
    assert kinds(zb_h1(4, 6, 1)[3]) == "F" + "IF" * 3 + "IWF" * 2 + "IW" + "WWW"


def test_zb_h2_goes_forward_until_the_first_gradient_is_there() -> None:
    first, *_, last = zb_h2(4, 12, 1)

    assert kinds(first).startswith("F" * 7 + "IWF")
    assert kinds(last).startswith("F" + "IF" * 6 + "IWF")


def test_weight_gradients_come_in_the_order_of_the_micro_batches() -> None:
    for order in (*zb_h1(4, 9, 1), *zb_h2(4, 9, 1)):
        assert [step.micro_batch for step in order if step.kind == "W"] == list(range(9))


def test_fewer_micro_batches_than_stages_are_all_in_flight_at_once() -> None:
    assert kinds(zb_h1(4, 2, 1)[0]) == "FFIWIW"
    assert kinds(zb_h2(4, 2, 1)[3]) == "FIFIWW"
