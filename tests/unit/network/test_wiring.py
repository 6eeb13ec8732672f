from __future__ import annotations

import numpy as np
import pytest

import clustersim.network.wiring
from clustersim.network.wiring import Alike, links_alike
from clustersim.topology.cluster import IntArray, KeyArray, pair_keys
from clustersim.topology.link_demand import RouteSet
from tests.unit.network.factories import INF, flow_class, wiring


def test_links_that_no_flow_class_tells_apart_are_one_link_class() -> None:
    found = wiring([flow_class([0, 1, 2]), flow_class([2, 3])], [8.0] * 5)

    assert found.first_link.tolist() == [0, 2, 3]
    assert found.class_of_link.tolist() == [0, 0, 1, 2, -1]
    assert found.n_links.tolist() == [2, 1, 1]


def test_a_flow_class_has_one_entry_for_each_of_its_link_classes() -> None:
    found = wiring([flow_class([0, 1, 2]), flow_class([2, 3])], [8.0] * 4)

    assert found.starts.tolist() == [0, 2, 4]
    assert found.link_classes.tolist() == [0, 1, 1, 2]


def test_loads_are_coefficients_times_weight_and_limits_caps_over_weight() -> None:
    found = wiring([flow_class({0: 3.0}, weight=2.0, cap=10.0), flow_class([0])], [8.0])

    assert found.loads.tolist() == [6.0, 1.0]
    assert found.flows.tolist() == [3.0, 1.0]
    assert found.limits.tolist() == [5.0, INF]


def test_flow_classes_are_connected_through_others() -> None:
    # 0 and 2 meet through 1; 3 and 4 share a link; 5 is alone.
    found = wiring([flow_class([0]), flow_class([0, 1]), flow_class([1]), flow_class([2]), flow_class([2]), flow_class([3])], [8.0] * 4)

    assert found.components.tolist() == [0, 0, 0, 3, 3, 5]


def test_a_long_chain_of_flow_classes_is_one_component() -> None:
    n_flow_classes = 300
    chain = [flow_class([link, link + 1]) for link in range(n_flow_classes)]

    found = wiring(chain[::-1], [8.0] * (n_flow_classes + 1))

    assert set(found.components.tolist()) == {0}


def test_flow_classes_meet_on_a_common_link_only() -> None:
    found = wiring([flow_class([0]), flow_class([0, 1]), flow_class([1])], [8.0] * 2)

    assert found.meets().tolist() == [[True, True, False], [True, True, True], [False, True, True]]


def test_rows_hold_the_demand_of_all_flows_of_the_flow_classes_in_flight() -> None:
    found = wiring([flow_class([0]), flow_class([0, 1]), flow_class({1: 2.0, 2: 1.0}, cap=3.0)], [8.0, 4.0, 2.0])

    assert found.rows([2], [5.0]) == [([(1, 10.0), (2, 5.0)], 3.0)]


def test_no_flow_classes_have_no_link_classes() -> None:
    found = wiring([], [8.0])

    assert found.first_link.tolist() == []
    assert found.class_of_link.tolist() == [-1]


def test_a_flow_class_without_links_is_by_itself() -> None:
    found = wiring([flow_class([0]), flow_class([])], [8.0])

    assert found.components.tolist() == [0, 1]
    assert found.starts.tolist() == [0, 1, 1]


def route_set(*links: int, flows: float = 1.0) -> RouteSet:
    return RouteSet(link_ids=np.array(links, dtype=np.int64), flows=np.full(len(links), flows))


def link_classes(*route_sets: RouteSet, capacity: tuple[float, ...], labels: tuple[int, ...] | None = None) -> Alike:
    return links_alike(route_sets, np.array(capacity), np.array(labels or [0] * len(capacity)))


def test_link_classes_are_numbered_by_their_first_link() -> None:
    found = link_classes(route_set(1, 2, 4), route_set(0, 4), capacity=(1.0,) * 6)

    assert found.first_link.tolist() == [0, 1, 4]
    assert found.class_of_link.tolist() == [0, 1, 1, -1, 2, -1]


def test_each_flow_class_has_an_entry_on_each_of_its_link_classes() -> None:
    found = link_classes(route_set(1, 2, 4), route_set(0, 4, flows=3.0), capacity=(1.0,) * 6).entries

    assert found.flow_classes.tolist() == [0, 0, 1, 1]
    assert found.places.tolist() == [1, 2, 0, 2]
    assert found.flows.tolist() == [1.0, 1.0, 3.0, 3.0]


def test_the_order_of_flow_classes_does_not_make_links_alike() -> None:
    """Links 0 and 1 have the same numbers of flows, of each other's flow classes."""
    some = RouteSet(link_ids=np.array([0, 1]), flows=np.array([1.0, 2.0]))
    others = RouteSet(link_ids=np.array([0, 1]), flows=np.array([2.0, 1.0]))

    assert link_classes(some, others, capacity=(1.0, 1.0)).first_link.tolist() == [0, 1]


def test_many_flow_classes_are_taken_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [route_set(*range(first, first + 5), flows=1.0 + first % 3) for first in range(40)]
    at_once = link_classes(*some, capacity=(1.0,) * 50)

    monkeypatch.setattr(clustersim.network.wiring, "ENTRIES", 7)
    monkeypatch.setattr(clustersim.network.wiring, "TABLE", 3)
    in_parts = link_classes(*some, capacity=(1.0,) * 50)

    assert in_parts.class_of_link.tolist() == at_once.class_of_link.tolist()
    assert in_parts.entries.flows.tolist() == at_once.entries.flows.tolist()


@pytest.mark.parametrize(
    ("route_sets", "capacity", "labels"),
    [
        ([route_set(0, 1)], (1.0, 2.0), (0, 0)),
        ([route_set(0, 1)], (1.0, 1.0), (0, 1)),
        ([route_set(0, 1), route_set(0)], (1.0, 1.0), (0, 0)),
        ([route_set(0), route_set(1)], (1.0, 1.0), (0, 0)),
        ([route_set(0), route_set(1, flows=0.0)], (1.0, 1.0), (0, 0)),
        ([RouteSet(link_ids=np.array([0, 1]), flows=np.array([1.0, 2.0]))], (1.0, 1.0), (0, 0)),
    ],
    ids=["capacity", "label", "number of flow classes", "flow classes", "a flow class without flows", "flows"],
)
def test_links_that_differ_are_kept_apart_even_with_one_hash(
    route_sets: list[RouteSet], capacity: tuple[float, ...], labels: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def blind_at_first(seed: int, sources: IntArray, destinations: IntArray) -> KeyArray:
        seeds.append(seed)
        return pair_keys(seed, sources, destinations) * np.uint64(min(seed, 1))

    monkeypatch.setattr(clustersim.network.wiring, "pair_keys", blind_at_first)

    assert link_classes(*route_sets, capacity=capacity, labels=labels).first_link.tolist() == [0, 1]
    assert set(seeds) == {0, 1}
