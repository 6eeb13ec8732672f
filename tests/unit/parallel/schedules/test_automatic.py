from __future__ import annotations

import pytest

from clustersim.parallel.schedules.automatic import StageRules, by_rules, zb_2p
from clustersim.parallel.schedules.execution import execute
from clustersim.parallel.schedules.order import EQUAL_COSTS, PassCosts, StageOrder
from clustersim.parallel.schedules.places import looped
from tests.unit.parallel.factories import peak_in_flight

RULES = StageRules(most_kept=4, back_first=True, late_fraction=0.0, spare_first=True)


def kinds(order: StageOrder) -> str:
    return "".join(step.kind for step in order)


def test_nothing_is_left_idle_where_all_passes_take_equally_long() -> None:
    executed = execute(zb_2p(4, 12, EQUAL_COSTS), looped(4, 1), EQUAL_COSTS)

    assert executed.longest_s == 36.0


def test_a_stage_that_may_keep_no_more_makes_weight_gradients_first() -> None:
    order = by_rules(2, 6, EQUAL_COSTS, RULES)[0]

    assert max(peak_in_flight(each, [1.0]) for each in by_rules(2, 6, EQUAL_COSTS, RULES)) <= 4
    assert kinds(order).startswith("FF")


def test_what_is_freed_by_the_input_gradient_makes_room() -> None:
    costs = PassCosts(forward_s=2.0, input_s=2.0, weight_s=1.0, weight_fraction=0.25)

    freed = zb_2p(4, 24, costs)
    kept = zb_2p(4, 24, PassCosts(forward_s=2.0, input_s=2.0, weight_s=1.0))

    assert max(peak_in_flight(order, [1.0], [0.25]) for order in freed) <= 8.0
    assert execute(freed, looped(4, 1), costs).longest_s < execute(kept, looped(4, 1), costs).longest_s


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_only_ratios_of_times_matter(scale: float) -> None:
    costs = PassCosts(forward_s=3.0 * scale, input_s=2.0 * scale, weight_s=1.0 * scale, send_s=0.25 * scale)

    assert zb_2p(4, 10, costs) == zb_2p(4, 10, PassCosts(forward_s=3.0, input_s=2.0, weight_s=1.0, send_s=0.25))


def test_the_same_question_has_the_same_answer() -> None:
    costs = PassCosts(forward_s=18.5, input_s=18.1, weight_s=9.3, send_s=0.6, weight_fraction=0.37)

    assert zb_2p(8, 24, costs) == zb_2p(8, 24, costs)
