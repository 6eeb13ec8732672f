"""Fabrics that are given switch by switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import GraphSwitch, Routing
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import (
    CABLE_S,
    LEAF_S,
    NIC_BYTES_PER_S,
    SPINE_S,
    all_pairs,
    bisection_bytes_per_s,
    make_fabric,
    make_node,
    named_rows,
)

SMALL = make_node(n_accelerators=2, n_nics=2)


def leaf(name: str, nodes: Sequence[int], **to: int) -> GraphSwitch:
    return GraphSwitch(switch=name, nodes=tuple(nodes), to=to)


TWO_TIERS = (leaf("a", (0, 1), s0=2, s1=2), leaf("b", (2, 3), s0=2, s1=2))
UNEVEN = (leaf("a", (0, 1), s0=3, s1=1), leaf("b", (2, 3), s0=2, s1=2))


def cluster(
    switches: Sequence[GraphSwitch] = TWO_TIERS, *, n_nodes: int = 4, routing: Routing = "adaptive", changes: tuple[LinkChange, ...] = ()
) -> Cluster:
    return build_cluster(SMALL, n_nodes, replace(make_fabric("graph", routing=routing), graph=tuple(switches)), changes=changes)


def across(built: Cluster, source: int, destination: int) -> dict[str, float]:
    """Return the links between switches of the first accelerators of two nodes, with the share of the bytes on each."""
    return {name: share for name, share in named_rows(built, 2 * source, 2 * destination) if not name.startswith("node")}


def test_a_graph_that_is_a_leaf_spine_fabric_has_its_times_and_bandwidth() -> None:
    tree = build_cluster(SMALL, 4, make_fabric("leaf_spine"))
    built = cluster()

    pairs = all_pairs(tree.n_ranks)
    assert np.array_equal(built.routes(*pairs).latency_s, tree.routes(*pairs).latency_s)
    assert bisection_bytes_per_s(built) == bisection_bytes_per_s(tree)


def test_parallel_cables_are_one_link_of_their_width() -> None:
    links = {link.name: link for link in cluster().links if link.tier == "leaf"}

    assert set(links) == {"a/s0", "s0/a", "a/s1", "s1/a", "b/s0", "s0/b", "b/s1", "s1/b"}
    assert {link.bandwidth_bytes_per_s for link in links.values()} == {2 * NIC_BYTES_PER_S}
    assert {link.latency_s for link in links.values()} == {LEAF_S / 2 + CABLE_S + SPINE_S / 2}


def test_every_switch_spreads_by_the_bandwidth_of_its_links() -> None:
    assert across(cluster(UNEVEN), 0, 2) == {"a/s0": 0.75, "a/s1": 0.25, "s0/b": 0.75, "s1/b": 0.25}
    assert across(cluster(UNEVEN), 2, 0) == {"b/s0": 0.5, "b/s1": 0.5, "s0/a": 0.5, "s1/a": 0.5}


def test_nodes_at_one_switch_cross_no_link_between_switches() -> None:
    assert across(cluster(), 0, 1) == {}


def test_a_hashed_pair_takes_one_cable_at_each_switch() -> None:
    built = cluster(routing="ecmp")

    found = [across(built, source, destination) for source in (0, 1) for destination in (2, 3)]
    assert all(len(each) == 2 and set(each.values()) == {1.0} for each in found)
    assert {name.partition("/")[0] for each in found for name in each} <= {"a", "s0", "s1"}


def test_a_link_that_is_down_is_gone_around_over_more_switches() -> None:
    chain = (leaf("a", (0, 1), b=1, c=1), leaf("b", (2, 3), c=1), leaf("c", ()))

    built = cluster(chain, changes=(LinkChange(between=("a", "b"), state="down"),))

    assert across(built, 0, 2) == {"a/c": 1.0, "c/b": 1.0}


def test_rails_hang_at_switches_of_their_own() -> None:
    rails = tuple(GraphSwitch(switch=f"rail{rail}", nodes=(0, 1), adapters=(rail,), to={"s": 1}) for rail in (0, 1))

    built = cluster(rails, n_nodes=2)

    assert across(built, 0, 1) == {}
    assert built.n_leaves == 2


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ((), "does not say at which switches the nodes hang"),
        ((leaf("a", (0, 1, 2, 3, 4)),), "a has node 4 of 4"),
        ((leaf("a", (0, 1, 2, 3)), leaf("b", (3,))), "hangs at another switch too"),
        ((leaf("a", (0, 1, 2)),), "adapter 0 of node 3 hangs at no switch"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(switches: tuple[GraphSwitch, ...], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        cluster(switches)
