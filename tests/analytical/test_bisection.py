from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.models import Fabric, FabricTopology, Node
from clustersim.topology.cluster import FloatArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from tests.unit.topology.factories import (
    NIC_BYTES_PER_S,
    PCIE_BYTES_PER_S,
    SCALE_UP_BYTES_PER_S,
    SOCKET_BYTES_PER_S,
    TREES,
    bisection_bytes_per_s,
    make_fabric,
    make_node,
    make_servers,
)


@pytest.mark.parametrize("topology", TREES)
def test_without_oversubscription_half_of_the_adapters_send_at_full_rate(topology: FabricTopology) -> None:
    cluster = build_cluster(make_node(), 16, make_fabric(topology, nodes_per_leaf=2, leaves_per_pod=2))

    assert bisection_bytes_per_s(cluster) == 16 / 2 * 8 * NIC_BYTES_PER_S


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("topology", ["leaf_spine", "rail_optimized"])
def test_oversubscription_divides_the_bisection(topology: FabricTopology, ratio: float) -> None:
    cluster = build_cluster(make_node(), 16, make_fabric(topology, nodes_per_leaf=4, oversubscription=ratio))

    assert bisection_bytes_per_s(cluster) == pytest.approx(8 * 8 * NIC_BYTES_PER_S / ratio, rel=1e-12)


@pytest.mark.parametrize("dimensions", [(4, 4, 4), (8, 8), (2, 2, 2), (3, 5, 4), (16,), (4, 2), (3, 6, 1)])
def test_a_torus_is_cut_twice_across_its_last_dimension(dimensions: tuple[int, ...]) -> None:
    n_nodes = prod(dimensions)
    long = [size for size in dimensions if size > 1]
    cluster = build_cluster(make_node(), n_nodes, make_fabric("torus", dimensions=dimensions))

    # Two rings of links cross, of as many as there are nodes in one layer; a link has its share of the eight adapters of a node.
    link_bytes_per_s = 8 * NIC_BYTES_PER_S / (2 * len(long))
    assert bisection_bytes_per_s(cluster) == pytest.approx(2 * n_nodes / long[-1] * link_bytes_per_s, rel=1e-9)


@pytest.mark.parametrize(("per_group", "global_links"), [(4, 2), (2, 4), (3, 3), (6, 1)])
@pytest.mark.parametrize("n_groups", [2, 4, 6])
def test_a_dragonfly_of_wide_groups_is_cut_between_them(per_group: int, global_links: int, n_groups: int) -> None:
    fabric = make_fabric("dragonfly", nodes_per_leaf=1, leaves_per_group=per_group, global_links=global_links)
    cluster = build_cluster(make_node(), n_groups * per_group, fabric)
    per_pair = per_group * global_links // (n_groups - 1)

    # Each of half of the groups has its links to each of the others; adapters and links inside groups carry more.
    assert bisection_bytes_per_s(cluster) == pytest.approx((n_groups / 2) ** 2 * per_pair * NIC_BYTES_PER_S, rel=1e-9)


@pytest.mark.parametrize("n_routers", [2, 4, 6, 8])
def test_one_group_of_a_dragonfly_is_cut_between_all_its_routers(n_routers: int) -> None:
    cluster = build_cluster(make_node(), n_routers, make_fabric("dragonfly", nodes_per_leaf=1, leaves_per_group=n_routers))

    assert bisection_bytes_per_s(cluster) == pytest.approx((n_routers / 2) ** 2 * NIC_BYTES_PER_S, rel=1e-9)


@pytest.mark.parametrize(
    ("fabric", "between", "left_fraction"),
    [
        (make_fabric(nodes_per_leaf=1), ("leaf0", "spines"), 15 / 16),  # one of the rails of one of two nodes
        (make_fabric("torus", dimensions=(4,)), ("router1", "router2"), 1 / 2),
        (make_fabric("leaf_spine", nodes_per_leaf=1, n_ports=8), ("leaf1", "spine0"), 7 / 8),  # one spine of four on one leaf of two
    ],
)
def test_a_link_that_is_down_carries_nothing_across(fabric: Fabric, between: tuple[str, str], left_fraction: float) -> None:
    whole = build_cluster(make_node(), 4, fabric)
    worn = build_cluster(make_node(), 4, fabric, changes=[LinkChange(between=between, state="down")])

    across_bytes_per_s = bisection_bytes_per_s(whole)

    assert bisection_bytes_per_s(worn) == pytest.approx(left_fraction * across_bytes_per_s, rel=1e-9)


def test_servers_are_on_neither_side() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=1)

    with_servers = build_cluster(make_node(), 4, fabric, servers=make_servers(3))

    assert bisection_bytes_per_s(with_servers) == bisection_bytes_per_s(build_cluster(make_node(), 4, fabric))


@pytest.mark.parametrize(("leaf_ratio", "core_ratio"), [(1.0, 7.0), (2.0, 7.0), (3.0, 1.0)])
def test_both_oversubscriptions_multiply_across_the_core(leaf_ratio: float, core_ratio: float) -> None:
    fabric = make_fabric("fat_tree", nodes_per_leaf=2, leaves_per_pod=4, oversubscription=leaf_ratio, core_oversubscription=core_ratio)

    cluster = build_cluster(make_node(), 16, fabric)

    assert bisection_bytes_per_s(cluster) == pytest.approx(8 * 8 * NIC_BYTES_PER_S / leaf_ratio / core_ratio, rel=1e-12)


@pytest.mark.parametrize(
    ("node", "n_nodes", "expected"),
    [
        (make_node("nvswitch"), 1, 4 * SCALE_UP_BYTES_PER_S),
        (make_node("nvswitch", n_accelerators=4, nodes_per_domain=18), 18, 36 * SCALE_UP_BYTES_PER_S),
        (make_node("cube_mesh", scale_up_links=4), 1, 4 * SCALE_UP_BYTES_PER_S / 4),
        (make_node("cube_mesh", scale_up_links=6), 1, (2 + 2 + 1 + 1) * SCALE_UP_BYTES_PER_S / 6),
        (make_node("full_mesh"), 1, 4 * 4 * SCALE_UP_BYTES_PER_S / 7),
        (make_node("bridge_pairs"), 1, SOCKET_BYTES_PER_S),
        (make_node("pcie"), 1, SOCKET_BYTES_PER_S),
        (make_node("pcie", n_sockets=1), 1, 2 * PCIE_BYTES_PER_S),
        (make_node("pcie", accelerators_per_pcie_switch=8), 1, 4 * PCIE_BYTES_PER_S),
        (make_node("bridge_pairs", n_accelerators=2), 1, SCALE_UP_BYTES_PER_S),
    ],
)
def test_a_domain_has_the_bisection_of_its_kind(node: Node, n_nodes: int, expected: float) -> None:
    assert bisection_bytes_per_s(build_cluster(node, n_nodes)) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=12),
    n_spines=st.integers(1, 4),
    oversubscription=st.sampled_from([1.0, 2.0, 3.0]),
)
def test_flows_spread_over_all_spines_get_what_a_bundle_gives_them(
    pairs: list[tuple[int, int]], n_spines: int, oversubscription: float
) -> None:
    """The claim on which `leaf/up` rests: each cable to each spine in one model, one bundle for each leaf in the other."""
    fabric = make_fabric("leaf_spine", nodes_per_leaf=2, oversubscription=oversubscription)
    uplink = 2 / oversubscription
    bundle, bundle_capacity = _loads(pairs, fabric, n_spines=1), _capacity(uplink, n_spines=1)
    cables, cable_capacity = _loads(pairs, fabric, n_spines=n_spines), _capacity(uplink, n_spines=n_spines)

    np.testing.assert_allclose(_max_min(cables, cable_capacity), _max_min(bundle, bundle_capacity), rtol=1e-9)


def _loads(pairs: list[tuple[int, int]], fabric: Fabric, *, n_spines: int) -> FloatArray:
    """Return the share of each flow on each link: 8 ways out, 8 ways in, then each of 4 leaves up and down, to each spine."""
    loads = np.zeros((16 + 8 * n_spines, len(pairs)))
    for flow, (source, destination) in enumerate(pairs):
        loads[source, flow] = loads[8 + destination, flow] = 1.0
        source_leaf, leaf = source // fabric.nodes_per_leaf, destination // fabric.nodes_per_leaf
        if source_leaf != leaf:
            for spine in range(n_spines):
                loads[16 + source_leaf * n_spines + spine, flow] = 1 / n_spines
                loads[16 + (4 + leaf) * n_spines + spine, flow] = 1 / n_spines
    return loads


def _capacity(uplink: float, *, n_spines: int) -> FloatArray:
    return np.concatenate((np.ones(16), np.full(8 * n_spines, uplink / n_spines)))


def _max_min(loads: FloatArray, capacity: FloatArray) -> FloatArray:
    """Progressive filling: all rates rise together; those on a full link stop."""
    rates, rising = np.zeros(loads.shape[1]), np.ones(loads.shape[1], dtype=bool)
    while rising.any():
        slope = loads @ rising
        left = capacity - loads @ rates
        step = np.min(left[slope > 0] / slope[slope > 0])
        rates += step * rising
        full = (capacity - loads @ rates) <= 1e-9 * capacity
        rising &= ~(loads[full] > 0).any(axis=0)
    return rates
