from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from clustersim.collectives.collective_flows import flow_set
from clustersim.collectives.group_layout import chains, closed_rings, largest_block, layouts, most_rails, ring_flows
from clustersim.collectives.pattern import grouping
from clustersim.topology.cluster import IntArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import RouteSet
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, SPINE_S, make_fabric, make_node

CLUSTER = build_cluster(make_node(), 3)


def groups(*members: tuple[int, ...]) -> np.ndarray:
    return np.array(members, dtype=np.int64)


def test_groups_that_lie_evenly_have_one_layout() -> None:
    found = layouts(grouping(CLUSTER, groups((0, 1, 8, 9), (2, 5, 18, 20))))

    assert [layout.sizes.tolist() for layout in found] == [[2, 2]]
    assert (most_rails(found), largest_block(found)) == (2, 2)


def test_groups_are_sorted_by_how_they_lie() -> None:
    found = layouts(grouping(CLUSTER, groups((0, 1, 2, 8), (3, 4, 9, 10), (5, 6, 7, 16))))

    assert [layout.sizes.tolist() for layout in found] == [[3, 1], [2, 2]]
    assert [layout.members.tolist() for layout in found] == [[[0, 1, 2, 8], [5, 6, 7, 16]], [[3, 4, 9, 10]]]
    assert [layout.n_rails for layout in found] == [1, 2]
    assert (most_rails(found), largest_block(found)) == (2, 3)


def test_the_first_members_of_each_domain_stand_for_the_rails() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8, 9))))

    assert layout.n_domains == 2
    assert layout.heads().tolist() == [[[0, 1], [8, 9]]]


def test_blocks_of_a_size_come_together() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8, 9, 16, 17))))

    assert [block.tolist() for block in layout.blocks()] == [[[8, 9], [16, 17]], [[0, 1, 2]]]


def test_closed_rings_use_each_edge_once_for_every_member() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((3, 4, 7))))

    rings = closed_rings(CLUSTER, layout)

    assert list(zip(rings.sources.tolist(), rings.destinations.tolist(), rings.counts.tolist(), strict=True)) == [
        (3, 4, 3.0),
        (4, 7, 3.0),
        (7, 3, 3.0),
    ]


def test_a_chain_leaves_out_the_edge_back_to_its_head() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8))))

    links = chains(CLUSTER, layout)

    # One rail: 0, 1, 2 in the first domain, and nothing to pass on in the second.
    assert list(zip(links.sources.tolist(), links.destinations.tolist(), links.counts.tolist(), strict=True)) == [(0, 1, 1.0), (1, 2, 1.0)]


@pytest.mark.parametrize("share", [2, 3, 8])
def test_chains_from_all_members_use_each_edge_once_less_than_there_are_members(share: int) -> None:
    members = tuple(node * 8 + index for node in range(2) for index in range(share))
    (layout,) = layouts(grouping(CLUSTER, groups(members)))

    assert set(chains(CLUSTER, layout).counts.tolist()) == {share - 1.0}


@dataclass(frozen=True)
class Rings:
    route_set: RouteSet
    n_rings: int
    intra_latency_s: float
    inter_latency_s: float


def lay_rings(cluster: Cluster, members: IntArray) -> Rings:
    flows = ring_flows(cluster, grouping(cluster, members))
    laid = flow_set(cluster, inside=flows.inside, between=flows.between, share=1.0, steps=(0, 0))
    return Rings(laid.route_set, flows.n_rings, laid.intra_latency_s, laid.inter_latency_s)


def members(*groups: tuple[int, ...]) -> IntArray:
    return np.array(groups, dtype=np.int64)


def flows_by_tier(cluster: Cluster, rings: Rings, tier: str) -> Counter[float]:
    """Return how many links of a tier carry how many flows."""
    used = zip(rings.route_set.link_ids.tolist(), rings.route_set.flows.tolist(), strict=True)
    return Counter(flows for link, flows in used if cluster.links[link].tier == tier)


def flows_on(cluster: Cluster, rings: Rings) -> dict[str, float]:
    used = zip(rings.route_set.link_ids.tolist(), rings.route_set.flows.tolist(), strict=True)
    return {cluster.links[link].name: flows for link, flows in used}


def test_inside_a_domain_every_way_up_and_down_carries_each_ring_once() -> None:
    cluster = build_cluster(make_node(), 1)

    rings = lay_rings(cluster, members((0, 1, 2, 3, 4, 5, 6, 7)))

    assert rings.n_rings == 8
    assert flows_by_tier(cluster, rings, "nvlink") == {8.0: 16}
    assert len(rings.route_set.link_ids) == 16


def test_rings_stay_on_their_rails() -> None:
    cluster = build_cluster(make_node(), 4, make_fabric("rail_optimized", nodes_per_leaf=4))

    rings = lay_rings(cluster, members(tuple(range(32))))

    assert set(cluster.tier_index[rings.route_set.link_ids]) == {0, 1, 3}


def test_groups_of_an_orbit_add_up_on_shared_links() -> None:
    cluster = build_cluster(make_node(n_nics=1), 2)

    rings = lay_rings(cluster, members(*((index, 8 + index) for index in range(8))))

    assert rings.n_rings == 1
    assert flows_by_tier(cluster, rings, "nic") == {8.0: 4}


def test_groups_that_lie_apart_do_not_add_up() -> None:
    cluster = build_cluster(make_node(), 2)

    rings = lay_rings(cluster, members((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)))

    assert rings.n_rings == 4
    assert flows_by_tier(cluster, rings, "nvlink") == {4.0: 32}


@pytest.mark.parametrize(("group", "n_rings"), [((0, 1, 2, 8), 1), ((0, 1, 2, 8, 9), 2), ((0, 1, 2, 3, 9, 10, 11), 3)])
def test_a_group_that_lies_unevenly_gets_a_ring_for_each_member_of_its_smallest_domain(group: tuple[int, ...], n_rings: int) -> None:
    rings = lay_rings(build_cluster(make_node(), 2), members(group))

    assert rings.n_rings == n_rings


def test_a_group_with_fewer_rings_than_another_counts_each_for_more() -> None:
    cluster = build_cluster(make_node(), 2)

    flows = flows_on(cluster, lay_rings(cluster, members((0, 1, 2, 8), (4, 5, 12, 13))))

    # One ring of the first group and two of the second: the tensor is as long for both.
    assert {name: flows[name] for name in flows if name.startswith("node0/nic") and name.endswith("tx")} == {
        "node0/nic0/tx": 2.0,
        "node0/nic4/tx": 1.0,
        "node0/nic5/tx": 1.0,
    }


def test_the_single_ring_of_an_uneven_group_passes_every_member_once() -> None:
    cluster = build_cluster(make_node(), 2)

    flows = flows_on(cluster, lay_rings(cluster, members((0, 1, 2, 8))))

    # 0 -> 1 -> 2 over the switch; it leaves by the adapter of the member that it entered by.
    assert {name for name in flows if "nvlink" in name} == {f"node0/gpu{end}" for end in ("0/nvlink/up", "1/nvlink/down")} | {
        f"node0/gpu{end}" for end in ("1/nvlink/up", "2/nvlink/down")
    }
    assert {name for name in flows if "nic" in name} == {"node0/nic0/tx", "node1/nic0/rx", "node1/nic0/tx", "node0/nic0/rx"}
    assert set(flows.values()) == {1.0}


def test_rings_over_domains_of_a_mesh_follow_its_direct_links() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 2)

    rings = lay_rings(cluster, members(tuple(range(16))))

    # Eight rings over six cycles each less the edge back to where it starts: 7/6 on a single link, 14/6 on a double one.
    nvlink = flows_by_tier(cluster, rings, "nvlink")
    assert sorted(nvlink) == pytest.approx([7 / 6, 14 / 6], rel=1e-12)
    assert sum(nvlink.values()) == 2 * 32
    assert flows_by_tier(cluster, rings, "nic") == {1.0: 32}


def test_a_rack_is_one_domain() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=18), 18)

    rings = lay_rings(cluster, members(tuple(range(72))))

    assert rings.n_rings == 72
    assert flows_by_tier(cluster, rings, "nvlink") == {72.0: 144}


def test_the_way_of_an_edge_is_the_longest_of_its_kind() -> None:
    cluster = build_cluster(make_node(), 4, make_fabric("leaf_spine", nodes_per_leaf=2))

    rings = lay_rings(cluster, members(tuple(range(32))))

    # From node 1 to node 2 a ring climbs to the spines, which the others need not.
    assert rings.intra_latency_s == SCALE_UP_S
    assert rings.inter_latency_s == pytest.approx(2 * NIC_S + 4 * CABLE_S + 2 * LEAF_S + SPINE_S, rel=1e-12)
