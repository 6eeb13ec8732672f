from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.maxmin import max_min_rates


def rates(flows: list[list[float]], capacity: list[float]) -> list[float]:
    return max_min_rates(np.array(flows, dtype=np.float64), np.array(capacity, dtype=np.float64)).tolist()


def test_a_lone_flow_gets_its_narrowest_link() -> None:
    assert rates([[1.0], [1.0], [1.0]], [10.0, 4.0, 7.0]) == [4.0]


def test_equal_flows_share_a_link_evenly() -> None:
    assert rates([[1.0, 1.0, 1.0, 1.0]], [10.0]) == [2.5, 2.5, 2.5, 2.5]


def test_what_a_slow_flow_leaves_goes_to_the_others() -> None:
    # Bertsekas and Gallager, section 6.5.2: sum on link 1 <= 10, sum on link 2 <= 4; flow 1 crosses both.
    assert rates([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [10.0, 4.0]) == [8.0, 2.0, 2.0]


def test_a_chain_of_links_fills_from_the_narrowest() -> None:
    # Flow 0 crosses all three links, flows 1 to 3 one each: 0 and 3 share the last, the others take what is left.
    flows = [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]

    assert rates(flows, [12.0, 9.0, 6.0]) == [3.0, 9.0, 6.0, 3.0]


def test_many_flows_in_one_variable_take_as_many_shares() -> None:
    # A ring that crosses the link three times and a transfer: every single flow gets a quarter.
    assert rates([[3.0, 1.0]], [8.0]) == [2.0, 2.0]


def test_a_variable_goes_at_the_pace_of_its_fullest_link() -> None:
    # One flow on the wide link, four on the narrow one: 4 r <= 8.
    assert rates([[1.0], [4.0]], [100.0, 8.0]) == [2.0]


def test_a_coupled_flow_leaves_bandwidth_where_it_is_held_back_elsewhere() -> None:
    # Variable 0: r <= 1 from the second link; the first then has 10 - 2 for variable 1.
    assert rates([[2.0, 1.0], [5.0, 0.0]], [10.0, 5.0]) == [1.0, 8.0]


def test_a_share_of_a_flow_takes_a_share_of_the_link() -> None:
    # Routing that spreads a flow over two links puts half on each.
    assert rates([[0.5, 1.0], [0.5, 0.0]], [3.0, 3.0]) == [2.0, 2.0]


def test_flows_that_share_nothing_do_not_touch_each_other() -> None:
    assert rates([[1.0, 0.0], [0.0, 1.0]], [3.0, 7.0]) == [3.0, 7.0]


def test_two_links_that_fill_at_once_end_the_filling_together() -> None:
    assert rates([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [6.0, 6.0]) == [3.0, 3.0, 3.0]


def test_a_flow_without_links_is_boundless() -> None:
    assert rates([[1.0, 0.0]], [5.0]) == [5.0, np.inf]


def test_a_link_without_flows_does_not_matter() -> None:
    assert rates([[1.0], [0.0]], [5.0, 1.0]) == [5.0]


def test_a_link_without_capacity_stops_what_crosses_it_and_nothing_else() -> None:
    assert rates([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 4.0]) == [0.0, 0.0, 4.0]


def test_nothing_in_flight_has_no_rates() -> None:
    assert max_min_rates(np.zeros((3, 0)), np.ones(3)).shape == (0,)


def test_whole_numbers_are_taken_as_capacities() -> None:
    assert max_min_rates(np.array([[1, 1]]), np.array([5])).tolist() == [2.5, 2.5]


def test_the_arguments_are_left_as_they_were() -> None:
    flows, capacity = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([10.0, 4.0])

    max_min_rates(flows, capacity)

    assert flows.tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert capacity.tolist() == [10.0, 4.0]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_links_full_but_for_round_off_count_as_full(scale: float) -> None:
    # 0.1 three times is not 0.3 in binary; both links must end the filling, or the second variable would creep on.
    found = rates([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [0.3 * scale, (0.1 + 0.1 + 0.1) * scale])

    assert found == pytest.approx([0.1 * scale] * 3, rel=1e-12)  # round-off
