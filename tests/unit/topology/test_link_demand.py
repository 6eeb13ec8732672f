"""Sums of what route sets put on links."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.topology.link_demand import Crossings, RouteSet, Sum, summed, taken


def route_set(flows: dict[int, float]) -> RouteSet:
    return RouteSet(link_ids=np.array(list(flows), dtype=np.int64), flows=np.array(list(flows.values())))


def by_link(of: RouteSet) -> dict[int, float]:
    return dict(zip(of.link_ids.tolist(), of.flows.tolist(), strict=True))


def test_links_that_are_listed_several_times_are_added_up() -> None:
    assert by_link(summed(np.array([5, 2, 5, 9]), np.array([1.0, 2.0, 0.5, 4.0]))) == {2: 2.0, 5: 1.5, 9: 4.0}


def test_numbers_of_links_may_be_larger_than_any_table() -> None:
    assert by_link(summed(np.array([10**17, 3, 10**17]), np.ones(3))) == {3: 1.0, 10**17: 2.0}


@pytest.mark.parametrize(
    "parts",
    [
        [{1: 1.0, 4: 2.0}, {1: 3.0}],
        [{1: 1.0, 4: 2.0}, {2: 3.0}],
        [{1: 1.0, 4: 2.0}, {4: 0.5, 7: 3.0}],
        [{4: 1.0}, {}, {1: 1.0}],
    ],
    ids=["known links", "a new one between", "a new one behind", "one before"],
)
def test_a_sum_holds_what_all_put_on_each_link(parts: list[dict[int, float]]) -> None:
    total = Sum()
    for part in parts:
        total.add(route_set(part))

    links = sorted({link for part in parts for link in part})
    assert by_link(total.route_set()) == {link: sum(part.get(link, 0.0) for part in parts) for link in links}


def test_adding_leaves_what_is_added_as_it_was() -> None:
    first, total = route_set({1: 1.0}), Sum()
    total.add(first)
    total.add(route_set({1: 2.0}))

    assert by_link(first) == {1: 1.0}


@pytest.mark.parametrize("last", [4, 10**12])
def test_links_with_nothing_to_carry_are_left_out(last: int) -> None:
    assert by_link(summed(np.array([1, 3, last]), np.array([0.0, 2.0, 1.0]))) == {3: 2.0, last: 1.0}


@pytest.mark.parametrize("stride", [1, 3, 5, 1000])
def test_near_links_and_far_ones_are_added_up_alike(stride: int) -> None:
    links = np.array([4, 0, 2, 4, 1, 3]) * stride + 7

    found = summed(links, np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))

    assert by_link(found) == {link * stride + 7: flows for link, flows in enumerate((2.0, 16.0, 4.0, 32.0, 9.0))}


def test_flows_that_are_far_apart_and_one_each_are_counted() -> None:
    found = summed(np.array([10**9, 5, 10**9, 7, 10**9]), np.ones(5))

    assert found.link_ids.tolist() == [5, 7, 10**9]
    assert found.flows.tolist() == [1.0, 1.0, 3.0]


def test_some_of_the_flows_are_taken_in_the_order_in_which_they_are_named() -> None:
    flows = Crossings(
        ranks=np.array([4, 5, 6]),
        starts=np.array([0, 2, 2, 5]),
        link_ids=np.array([10, 11, 12, 13, 14]),
        amounts=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        latency_s=np.array([0.1, 0.2, 0.3]),
    )

    some = taken(flows, np.array([2, 1, 0]))

    assert some.ranks.tolist() == [6, 5, 4]
    assert some.starts.tolist() == [0, 3, 3, 5]
    assert some.link_ids.tolist() == [12, 13, 14, 10, 11]
    assert some.amounts.tolist() == [3.0, 4.0, 5.0, 1.0, 2.0]
    assert some.latency_s.tolist() == [0.3, 0.2, 0.1]
