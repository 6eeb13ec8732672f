from __future__ import annotations

from clustersim.parallel.schedules.execution import execute, needs
from clustersim.parallel.schedules.order import PassCosts, backward, forward, input_gradient, side_by_side, weight_gradient
from clustersim.parallel.schedules.places import looped

COSTS = PassCosts(forward_s=1.0, input_s=2.0, weight_s=4.0, send_s=0.5)


def test_passes_start_when_the_stage_is_free_and_what_they_need_has_come() -> None:
    executed = execute(((forward(0), backward(0)), (forward(0), backward(0))), looped(2, 1), COSTS)

    assert (executed.start_s, executed.end_s) == ([0.0, 1.5], [15.0, 8.5])
    assert executed.longest_s == 15.0


def test_a_result_leaves_after_the_input_gradient() -> None:
    split = (forward(0), input_gradient(0), weight_gradient(0))

    executed = execute((split, split), looped(2, 1), COSTS)

    # 1 + 0.5 + 1 + 2 + 0.5 + 2 + 4
    assert executed.end_s == [11.0, 8.5]


def test_passes_side_by_side_begin_and_end_together() -> None:
    order = (forward(0), *side_by_side(forward(1), backward(0)), backward(1))

    executed = execute((order, order), looped(2, 1), COSTS)

    # On stage 1 the pair lasts from 2.5 to 9.5, though its first pass alone would be through at 3.5.
    assert executed.at == [1, 1]


def test_a_pass_needs_what_its_own_stage_and_its_neighbours_have_made() -> None:
    neighbours = looped(2, 1).neighbours()

    assert needs(0, forward(3), neighbours) == []
    assert needs(1, forward(3), neighbours) == [(0, 0, "F", 3)]
    assert needs(0, input_gradient(3), neighbours) == [(0, 0, "F", 3), (1, 0, "back", 3)]
    assert needs(1, backward(3), neighbours) == [(1, 0, "F", 3)]
    assert needs(1, weight_gradient(3), neighbours) == [(1, 0, "back", 3)]


def test_it_stops_where_nothing_can_go_on() -> None:
    executed = execute(((backward(0), forward(0)), (forward(0), backward(0))), looped(2, 1), COSTS)

    assert executed.at == [0, 0]
