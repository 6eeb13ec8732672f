"""Link classes of links by hashes, and what happens when two links have one hash."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.network import alike
from clustersim.network.alike import Alike, links_alike
from clustersim.topology.cluster import IntArray
from clustersim.topology.hashing import KeyArray, pair_keys
from clustersim.topology.link_demand import Footprint


def footprint(*links: int, flows: float = 1.0) -> Footprint:
    return Footprint(link_ids=np.array(links, dtype=np.int64), flows=np.full(len(links), flows))


def link_classes(*footprints: Footprint, capacity: tuple[float, ...], labels: tuple[int, ...] | None = None) -> Alike:
    return links_alike(footprints, np.array(capacity), np.array(labels or [0] * len(capacity)))


def test_link_classes_are_numbered_by_their_first_link() -> None:
    found = link_classes(footprint(1, 2, 4), footprint(0, 4), capacity=(1.0,) * 6)

    assert found.first_link.tolist() == [0, 1, 4]
    assert found.class_of_link.tolist() == [0, 1, 1, -1, 2, -1]


def test_each_flow_class_has_an_entry_on_each_of_its_link_classes() -> None:
    found = link_classes(footprint(1, 2, 4), footprint(0, 4, flows=3.0), capacity=(1.0,) * 6).entries

    assert found.flow_classes.tolist() == [0, 0, 1, 1]
    assert found.places.tolist() == [1, 2, 0, 2]
    assert found.flows.tolist() == [1.0, 1.0, 3.0, 3.0]


def test_the_order_of_flow_classes_does_not_make_links_alike() -> None:
    """Links 0 and 1 have the same numbers of flows, of each other's flow classes."""
    some = Footprint(link_ids=np.array([0, 1]), flows=np.array([1.0, 2.0]))
    others = Footprint(link_ids=np.array([0, 1]), flows=np.array([2.0, 1.0]))

    assert link_classes(some, others, capacity=(1.0, 1.0)).first_link.tolist() == [0, 1]


def test_many_flow_classes_are_taken_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [footprint(*range(first, first + 5), flows=1.0 + first % 3) for first in range(40)]
    at_once = link_classes(*some, capacity=(1.0,) * 50)

    monkeypatch.setattr(alike, "ENTRIES", 7)
    monkeypatch.setattr(alike, "TABLE", 3)
    in_parts = link_classes(*some, capacity=(1.0,) * 50)

    assert in_parts.class_of_link.tolist() == at_once.class_of_link.tolist()
    assert in_parts.entries.flows.tolist() == at_once.entries.flows.tolist()


@pytest.mark.parametrize(
    ("footprints", "capacity", "labels"),
    [
        ([footprint(0, 1)], (1.0, 2.0), (0, 0)),
        ([footprint(0, 1)], (1.0, 1.0), (0, 1)),
        ([footprint(0, 1), footprint(0)], (1.0, 1.0), (0, 0)),
        ([footprint(0), footprint(1)], (1.0, 1.0), (0, 0)),
        ([footprint(0), footprint(1, flows=0.0)], (1.0, 1.0), (0, 0)),
        ([Footprint(link_ids=np.array([0, 1]), flows=np.array([1.0, 2.0]))], (1.0, 1.0), (0, 0)),
    ],
    ids=["capacity", "label", "number of flow classes", "flow classes", "a flow class without flows", "flows"],
)
def test_links_that_differ_are_kept_apart_even_with_one_hash(
    footprints: list[Footprint], capacity: tuple[float, ...], labels: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def blind_at_first(seed: int, sources: IntArray, destinations: IntArray) -> KeyArray:
        seeds.append(seed)
        return pair_keys(seed, sources, destinations) * np.uint64(min(seed, 1))

    monkeypatch.setattr(alike, "pair_keys", blind_at_first)

    assert link_classes(*footprints, capacity=capacity, labels=labels).first_link.tolist() == [0, 1]
    assert set(seeds) == {0, 1}
