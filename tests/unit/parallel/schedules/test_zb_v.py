from __future__ import annotations

import pytest

from clustersim.parallel.schedules.execution import execute
from clustersim.parallel.schedules.order import EQUAL_COSTS, StageOrder
from clustersim.parallel.schedules.places import v_shaped
from clustersim.parallel.schedules.zb_v import zb_v


def text(order: StageOrder) -> str:
    return " ".join(f"{step.kind}{step.chunk}" for step in order)


def test_the_first_stage_goes_forward_until_the_first_micro_batch_comes_up_again() -> None:
    first, *_, last = zb_v(4, 8, 2)

    assert text(first).startswith("F0 " * 7 + "F1 I1 W1")
    assert text(last).startswith("F0 F1 F0 F1 F0 F1 F0 F1 I1 W1 F0 I0 W0")


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 7), (4, 30), (8, 15)])
def test_no_stage_waits_once_it_has_begun_where_all_passes_take_equally_long(p: int, m: int) -> None:
    executed = execute(zb_v(p, m, 2), v_shaped(p, 2), EQUAL_COSTS)

    assert [end - start for start, end in zip(executed.start_s, executed.end_s, strict=True)] == [6.0 * m] * p


def test_few_micro_batches_leave_places_empty() -> None:
    orders = zb_v(4, 2, 2)

    assert all({step.micro_batch for step in order} == {0, 1} for order in orders)
