from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.models import Fabric, FabricTopology, Node, Routing, ScaleUpKind
from clustersim.topology import FABRICS, SCALE_UP
from clustersim.topology.bisection import bisection_bandwidth_bytes_per_s
from clustersim.topology.changes import LinkChange
from clustersim.topology.cluster import TIERS, FloatArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import WiredCluster
from tests.unit.topology.factories import (
    NIC_BYTES_PER_S,
    PCIE_BYTES_PER_S,
    SCALE_UP_BYTES_PER_S,
    SOCKET_BYTES_PER_S,
    TREES,
    accelerator_name,
    all_pairs,
    fitted,
    make_fabric,
    make_node,
    make_servers,
    wire_graph,
)

NETWORK = ("nic", "leaf", "spine")


def max_flow_bytes_per_s(graph: nx.DiGraph, senders: Sequence[str], receivers: Sequence[str]) -> float:
    """Return what all senders together can push to all receivers together, by search."""
    flow_graph = graph.copy()
    flow_graph.add_edges_from(("every sender", sender) for sender in senders)  # an edge without capacity is boundless
    flow_graph.add_edges_from((receiver, "every receiver") for receiver in receivers)
    return float(nx.maximum_flow_value(flow_graph, "every sender", "every receiver"))


def max_flow_between_domains(cluster: WiredCluster) -> float:
    half = cluster.n_domains // 2 * cluster.node.scale_up.nodes_per_domain
    graph = wire_graph(cluster, NETWORK)
    nodes = [name for name in graph if name.startswith("node")]
    first = [name for name in nodes if int(name.split("/")[0].removeprefix("node")) < half]
    return max_flow_bytes_per_s(graph, first, [name for name in nodes if name not in first])


def max_flow_in_domain(cluster: WiredCluster) -> float:
    used = cluster.tier_index[cluster.routes(*all_pairs(cluster.n_ranks)).link_ids]
    graph = wire_graph(cluster, tuple(TIERS[index] for index in np.unique(used)))
    names = [accelerator_name(cluster, rank) for rank in range(cluster.n_ranks)]
    half = len(names) // 2
    return max_flow_bytes_per_s(graph, names[:half], names[half:])


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
@pytest.mark.parametrize("topology", list(FABRICS))
@pytest.mark.parametrize("n_nodes", [2, 4, 5, 7, 8, 12])
@pytest.mark.parametrize("n_nics", [2, 8])
def test_the_closed_form_is_the_maximum_flow(topology: FabricTopology, n_nodes: int, n_nics: int, routing: Routing) -> None:
    fabric = make_fabric(
        topology, nodes_per_leaf=3, leaves_per_pod=2, oversubscription=3.0, core_oversubscription=2.0, routing=routing, n_ports=16
    )
    cluster = build_cluster(make_node(n_nics=n_nics), n_nodes, fitted(fabric, n_nodes))

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(max_flow_between_domains(cluster), rel=1e-9)  # the search adds up


@settings(deadline=None, max_examples=60)
@given(
    topology=st.sampled_from(list(FABRICS)),
    n_nodes=st.integers(2, 13),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    ratios=st.tuples(st.sampled_from([0.5, 1.0, 2.0, 7.0]), st.sampled_from([0.5, 1.0, 3.0])),
    nodes_per_domain=st.integers(1, 3),
    routing=st.sampled_from(["adaptive", "ecmp"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_closed_form_holds_for_uneven_links_too(
    *,
    topology: FabricTopology,
    n_nodes: int,
    sizes: tuple[int, int],
    ratios: tuple[float, float],
    nodes_per_domain: int,
    routing: Routing,
    seed: int,
) -> None:
    fabric = make_fabric(
        topology,
        nodes_per_leaf=sizes[0],
        leaves_per_pod=sizes[1],
        oversubscription=ratios[0],
        core_oversubscription=ratios[1],
        routing=routing,
        n_ports=8,
    )
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=nodes_per_domain), n_nodes, fitted(fabric, n_nodes))
    cluster = _worn(cluster, seed)
    expected = max_flow_between_domains(cluster) if cluster.n_domains > 1 else max_flow_in_domain(cluster)

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(
    kind=st.sampled_from(list(SCALE_UP)),
    n_accelerators=st.integers(1, 8),
    below_switch=st.integers(1, 5),
    n_sockets=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_within_a_node_it_is_the_maximum_flow_too(
    kind: ScaleUpKind, n_accelerators: int, below_switch: int, n_sockets: int, seed: int
) -> None:
    node = make_node(kind, n_accelerators=n_accelerators, accelerators_per_pcie_switch=below_switch, n_sockets=n_sockets)
    cluster = build_cluster(node, 1)
    cluster = _worn(cluster, seed)
    expected = max_flow_in_domain(cluster) if n_accelerators > 1 else 0.0

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("topology", TREES)
def test_without_oversubscription_half_of_the_adapters_send_at_full_rate(topology: FabricTopology) -> None:
    cluster = build_cluster(make_node(), 16, make_fabric(topology, nodes_per_leaf=2, leaves_per_pod=2))

    assert bisection_bandwidth_bytes_per_s(cluster) == 16 / 2 * 8 * NIC_BYTES_PER_S


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("topology", ["leaf_spine", "rail_optimized"])
def test_oversubscription_divides_the_bisection(topology: FabricTopology, ratio: float) -> None:
    cluster = build_cluster(make_node(), 16, make_fabric(topology, nodes_per_leaf=4, oversubscription=ratio))

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(8 * 8 * NIC_BYTES_PER_S / ratio, rel=1e-12)


@pytest.mark.parametrize("dimensions", [(4, 4, 4), (8, 8), (2, 2, 2), (3, 5, 4), (16,), (4, 2), (3, 6, 1)])
def test_a_torus_is_cut_twice_across_its_last_dimension(dimensions: tuple[int, ...]) -> None:
    n_nodes = prod(dimensions)
    long = [size for size in dimensions if size > 1]
    cluster = build_cluster(make_node(), n_nodes, make_fabric("torus", dimensions=dimensions))

    # Two rings of links cross, of as many as there are nodes in one layer; a link has its share of the eight adapters of a node.
    link_bytes_per_s = 8 * NIC_BYTES_PER_S / (2 * len(long))
    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(2 * n_nodes / long[-1] * link_bytes_per_s, rel=1e-9)


@pytest.mark.parametrize(("per_group", "global_links"), [(4, 2), (2, 4), (3, 3), (6, 1)])
@pytest.mark.parametrize("n_groups", [2, 4, 6])
def test_a_dragonfly_of_wide_groups_is_cut_between_them(per_group: int, global_links: int, n_groups: int) -> None:
    fabric = make_fabric("dragonfly", nodes_per_leaf=1, leaves_per_group=per_group, global_links=global_links)
    cluster = build_cluster(make_node(), n_groups * per_group, fabric)
    per_pair = per_group * global_links // (n_groups - 1)

    # Each of half of the groups has its links to each of the others; adapters and links inside groups carry more.
    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx((n_groups / 2) ** 2 * per_pair * NIC_BYTES_PER_S, rel=1e-9)


@pytest.mark.parametrize("n_routers", [2, 4, 6, 8])
def test_one_group_of_a_dragonfly_is_cut_between_all_its_routers(n_routers: int) -> None:
    cluster = build_cluster(make_node(), n_routers, make_fabric("dragonfly", nodes_per_leaf=1, leaves_per_group=n_routers))

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx((n_routers / 2) ** 2 * NIC_BYTES_PER_S, rel=1e-9)


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
    worn = build_cluster(make_node(), 4, fabric, changes=[LinkChange(between=between, down=True)])

    across_bytes_per_s = bisection_bandwidth_bytes_per_s(whole)

    assert bisection_bandwidth_bytes_per_s(worn) == pytest.approx(left_fraction * across_bytes_per_s, rel=1e-9)


def test_servers_are_on_neither_side() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=1)

    with_servers = build_cluster(make_node(), 4, fabric, servers=make_servers(3))

    assert bisection_bandwidth_bytes_per_s(with_servers) == bisection_bandwidth_bytes_per_s(build_cluster(make_node(), 4, fabric))


@pytest.mark.parametrize(("leaf_ratio", "core_ratio"), [(1.0, 7.0), (2.0, 7.0), (3.0, 1.0)])
def test_both_oversubscriptions_multiply_across_the_core(leaf_ratio: float, core_ratio: float) -> None:
    fabric = make_fabric("fat_tree", nodes_per_leaf=2, leaves_per_pod=4, oversubscription=leaf_ratio, core_oversubscription=core_ratio)

    cluster = build_cluster(make_node(), 16, fabric)

    assert bisection_bandwidth_bytes_per_s(cluster) == pytest.approx(8 * 8 * NIC_BYTES_PER_S / leaf_ratio / core_ratio, rel=1e-12)


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
        (make_node("pcie", n_accelerators=1), 1, 0.0),
    ],
)
def test_a_domain_has_the_bisection_of_its_kind(node: Node, n_nodes: int, expected: float) -> None:
    assert bisection_bandwidth_bytes_per_s(build_cluster(node, n_nodes)) == pytest.approx(expected, rel=1e-12)


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


def _worn(cluster: WiredCluster, seed: int) -> WiredCluster:
    """Return the same cluster with every link at some eighths of its bandwidth."""
    eighths = np.random.default_rng(seed).integers(1, 9, len(cluster.links))
    return dataclasses.replace(cluster, bandwidth_bytes_per_s=eighths / 8 * cluster.bandwidth_bytes_per_s)


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
