from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from clustersim.network.fluid import FluidNetwork, link_cells
from clustersim.topology.load import Footprint


def footprint(**flows: float) -> Footprint:
    """Return a footprint from ``l3=2.0``: two flows on link 3."""
    return Footprint(link_ids=np.array([int(name[1:]) for name in flows], dtype=np.int64), flows=np.array(list(flows.values())))


def network(kinds: Sequence[Footprint], capacity: Sequence[float], labels: Sequence[float] | None = None) -> FluidNetwork:
    given = np.zeros(len(capacity)) if labels is None else np.array(labels)
    return FluidNetwork(cells=link_cells(kinds, np.array(capacity, dtype=np.float64), given))


def test_links_that_no_flow_tells_apart_are_one_cell() -> None:
    cells = link_cells([footprint(l1=1.0, l2=1.0, l4=1.0)], np.array([9.0, 5.0, 5.0, 9.0, 7.0]), np.zeros(5))

    assert cells.capacity_bytes_per_s.tolist() == [5.0, 7.0]
    assert cells.n_links.tolist() == [2.0, 1.0]
    assert cells.first_link == (1, 4)
    assert cells.flows.tolist() == [[1.0], [1.0]]


def test_links_with_other_flows_are_other_cells() -> None:
    cells = link_cells([footprint(l0=1.0, l1=1.0), footprint(l1=2.0)], np.array([5.0, 5.0]), np.zeros(2))

    assert sorted(zip(cells.first_link, cells.flows.tolist(), strict=True)) == [(0, [1.0, 0.0]), (1, [1.0, 2.0])]


def test_links_of_two_tiers_are_kept_apart() -> None:
    cells = link_cells([footprint(l0=1.0, l1=1.0)], np.array([5.0, 5.0]), np.array([0.0, 3.0]))

    assert cells.first_link == (0, 1)


def test_links_without_flows_are_left_out() -> None:
    cells = link_cells([footprint(l2=1.0)], np.array([1.0, 2.0, 3.0]), np.zeros(3))

    assert cells.first_link == (2,)


def test_a_program_without_traffic_has_no_cells() -> None:
    cells = link_cells([], np.array([1.0]), np.zeros(1))

    assert cells.first_link == ()
    assert cells.flows.shape == (0, 0)


def test_cells_give_the_rates_of_their_links() -> None:
    idle = network([footprint(l0=1.0, l1=1.0), footprint(l1=1.0, l2=1.0)], [10.0, 10.0, 4.0])

    assert idle.rates((0, 1)) == {0: 6.0, 1: 4.0}


def test_flows_of_one_kind_share_as_often_as_they_are_in_flight() -> None:
    idle = network([footprint(l0=1.0), footprint(l0=1.0)], [12.0])

    assert idle.rates((0,)) == {0: 12.0}
    assert idle.rates((0, 0)) == {0: 6.0}
    assert idle.rates((0, 0, 1)) == {0: 4.0, 1: 4.0}


def test_a_solution_is_found_again() -> None:
    idle = network([footprint(l0=1.0)], [12.0])

    assert idle.rates((0, 0)) is idle.rates((0, 0))


def test_a_lone_flow_ends_after_bytes_over_bandwidth() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.start(7, 0, 32.0)
    flying.share()

    assert flying.next_end_s() == 4.0


def test_an_idle_network_waits_for_nothing() -> None:
    idle = network([footprint(l0=1.0)], [8.0])
    idle.share()

    assert idle.next_end_s() == float("inf")
    assert idle.finished() == []


def test_the_next_end_is_that_of_the_shortest_flow() -> None:
    flying = network([footprint(l0=1.0), footprint(l1=1.0)], [8.0, 1.0])
    flying.start(0, 0, 32.0)
    flying.start(1, 1, 3.0)
    flying.share()

    assert flying.next_end_s() == 3.0


def test_finished_flows_leave_in_the_order_in_which_they_started() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    for flow in (5, 2, 9):
        flying.start(flow, 0, 8.0)
    flying.share()

    flying.advance(flying.next_end_s())

    assert flying.finished() == [5, 2, 9]
    assert flying.finished() == []


def test_a_flow_that_joins_halves_what_is_left_for_the_first() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.start(0, 0, 32.0)
    flying.share()
    flying.advance(1.0)
    flying.start(1, 0, 100.0)
    flying.share()

    # 24 bytes are left at 4 bytes/s from the first second on.
    assert flying.next_end_s() == 7.0


def test_a_flow_that_ends_leaves_its_share_to_the_others() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.start(0, 0, 8.0)
    flying.start(1, 0, 16.0)
    flying.share()
    flying.advance(2.0)

    assert flying.finished() == [0]
    flying.share()
    assert flying.next_end_s() == 3.0


def test_no_time_moves_no_bytes() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.start(0, 0, 16.0)
    flying.share()
    flying.advance(0.0)

    assert flying.next_end_s() == 2.0
    assert flying.occupancy() == {}


def test_a_flow_with_bytes_left_is_not_finished() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.start(0, 0, 16.0)
    flying.share()
    flying.advance(1.999999)

    assert flying.finished() == []


def test_what_a_late_clock_cannot_resolve_counts_as_nothing() -> None:
    # At 1e6 s a double resolves 1e-10 s, in which this link moves 100 bytes.
    flying = network([footprint(l0=1.0)], [1e12])
    flying.advance(1e6)
    flying.start(0, 0, 1000.0)
    flying.share()
    flying.advance(flying.next_end_s())

    assert flying.finished() == [0]


def test_the_account_says_how_long_each_combination_was_in_flight() -> None:
    flying = network([footprint(l0=1.0), footprint(l0=1.0)], [8.0])
    flying.start(0, 1, 24.0)
    flying.share()
    flying.advance(1.0)
    flying.start(1, 0, 4.0)
    flying.share()
    flying.advance(2.0)
    assert flying.finished() == [1]
    flying.share()
    flying.advance(3.5)

    assert flying.finished() == [0]
    assert flying.occupancy() == {(1,): 2.5, (0, 1): 1.0}


def test_idle_time_is_not_in_the_account() -> None:
    flying = network([footprint(l0=1.0)], [8.0])
    flying.share()
    flying.advance(5.0)
    flying.start(0, 0, 8.0)
    flying.share()
    flying.advance(6.0)

    assert flying.finished() == [0]
    assert flying.occupancy() == {(0,): 1.0}


def test_progress_is_that_of_one_flow_of_the_kind() -> None:
    # Four flows of the kind cross the link: each moves at a quarter.
    flying = network([footprint(l0=4.0)], [8.0])
    flying.start(0, 0, 2.0)
    flying.share()

    assert flying.next_end_s() == pytest.approx(1.0, rel=1e-15)
