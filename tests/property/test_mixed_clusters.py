"""Clusters of several kinds of nodes: routes, numbering and the folding of links."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import grouping
from clustersim.hardware.models import Node, ScaleUpKind
from clustersim.network.wiring import FlowClass, wiring_of
from clustersim.topology import FABRICS, SCALE_UP
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import adapters_of, all_pairs, fitted, make_fabric, make_node, make_servers


@st.composite
def kinds(draw: st.DrawFn, index: int, n_nics: int | None = None) -> tuple[Node, int]:
    scale_up: ScaleUpKind = draw(st.sampled_from(list(SCALE_UP)))
    node = make_node(
        scale_up,
        n_accelerators=draw(st.sampled_from([2, 4, 8])) if n_nics is None else n_nics,
        n_nics=draw(st.integers(1, 9)) if n_nics is None else n_nics,
        accelerators_per_pcie_switch=draw(st.integers(1, 4)),
        n_sockets=draw(st.integers(1, 2)),
        nodes_per_domain=draw(st.integers(1, 2)) if scale_up == "nvswitch" else 1,
        scale_up_links=6 if scale_up == "cube_mesh" else None,
    )
    share = draw(st.sampled_from([1.0, 0.5, 0.25]))
    nic = replace(node.nic, bandwidth_bytes_per_s=share * node.nic.bandwidth_bytes_per_s)
    return replace(node, name=f"kind {index}", nic=nic), draw(st.integers(1, 3))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    topology = draw(st.sampled_from(list(FABRICS)))
    n_nics = draw(st.sampled_from([2, 4])) if topology == "rail_optimized" else None
    some = tuple(draw(kinds(index, n_nics)) for index in range(draw(st.integers(2, 3))))
    servers = make_servers(1, draw(st.integers(1, 3))) if draw(st.booleans()) else None
    fabric = make_fabric(
        topology,
        nodes_per_leaf=draw(st.integers(1, 3)),
        leaves_per_pod=draw(st.integers(1 if topology == "fat_tree" else 0, 3)),
        global_links=8,
        routing=draw(st.sampled_from(["adaptive", "ecmp"])),
    )
    n_places = sum(count for _, count in some) + (1 if servers else 0)
    return build_mixed_cluster(some, fitted(fabric, n_places), servers=servers)


def merged(end: str) -> str:
    """Return the name of a place; the sockets of a host are one, at which its memory hangs."""
    place, _, part = end.partition("/")
    return f"{place}/sockets" if part.startswith("socket") else end


def place_of(cluster: Cluster, endpoint: int) -> str:
    if endpoint >= cluster.n_ranks:
        return f"{cluster.place_name(endpoint - cluster.n_ranks)}/sockets"
    before = 0
    for node in range(cluster.n_nodes):
        size = cluster.node_at(node).n_accelerators
        if endpoint < before + size:
            return f"node{node}/gpu{endpoint - before}"
        before += size
    raise AssertionError(endpoint)


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 1000))
def test_every_path_of_a_route_leads_from_its_source_to_its_destination(cluster: Cluster, seed: int) -> None:
    generator = np.random.default_rng(seed)
    n_endpoints = cluster.n_ranks + cluster.n_hosts
    sources, destinations = generator.integers(0, n_endpoints, 40), generator.integers(0, n_endpoints, 40)
    routes = cluster.routes(sources, destinations)

    for pair, (begin, end) in enumerate(pairwise(routes.starts)):
        joins = [tuple(merged(name) for name in cluster.ends(int(link))) for link in routes.link_ids[begin:end]]
        flow: dict[str, float] = {}
        for (tail, head), share in zip(joins, routes.weights[begin:end], strict=True):
            flow[tail] = flow.get(tail, 0.0) - float(share)
            flow[head] = flow.get(head, 0.0) + float(share)
        left = {name: round(amount, 9) for name, amount in flow.items() if abs(amount) > 1e-9}
        source, destination = (place_of(cluster, int(ends[pair])) for ends in (sources, destinations))
        assert left == ({} if source == destination else {source: -1.0, destination: 1.0})


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_inside_a_node_everything_is_as_in_a_cluster_of_its_kind(cluster: Cluster) -> None:
    for kind, (node, _) in enumerate(cluster.kinds):
        place = int(np.flatnonzero(cluster.kind_of(np.arange(cluster.n_nodes, dtype=np.int64)) == kind)[0])
        own = cluster.ranks_on(np.array([place], dtype=np.int64))
        alone = build_cluster(node, 2, make_fabric("single_switch"))
        sources, destinations = all_pairs(len(own))
        here, there = alone.routes(sources, destinations), cluster.routes(own[sources], own[destinations])

        names = [cluster.link_name(int(link)).replace(f"node{place}/", "node0/") for link in there.link_ids]
        assert names == [alone.link_name(int(link)) for link in here.link_ids]
        np.testing.assert_array_equal(here.starts, there.starts)
        np.testing.assert_array_equal(here.latency_s, there.latency_s)


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_ranks_and_nodes_count_through_the_kinds(cluster: Cluster) -> None:
    ranks = np.arange(cluster.n_ranks, dtype=np.int64)
    nodes = np.arange(cluster.n_nodes, dtype=np.int64)
    sizes = [node.n_accelerators for node, count in cluster.kinds for _ in range(count)]

    assert cluster.n_ranks == sum(sizes)
    np.testing.assert_array_equal(cluster.ranks_on(nodes), ranks)
    np.testing.assert_array_equal(np.bincount(cluster.node_of(ranks), minlength=cluster.n_nodes), sizes)
    assert bool((np.diff(adapters_of(cluster, ranks)) >= 0).all())


@settings(deadline=None, max_examples=40)
@given(clusters(), st.sampled_from(["ring", "tree", "hierarchical"]))
def test_links_of_one_cell_have_the_same_capacity(cluster: Cluster, algorithm: str) -> None:
    group = grouping(cluster, np.arange(cluster.n_ranks, dtype=np.int64)[None])
    pattern = ALGORITHMS["all_reduce"][algorithm].lay(cluster, group)
    flows = [FlowClass(route_set=flow_set.route_set, weight=1.0, cap_bytes_per_s=inf) for phase in pattern.phases for flow_set in phase]

    wiring = wiring_of(flows, cluster.bandwidth_bytes_per_s, cluster.tier_index)

    for cell, capacity in enumerate(wiring.capacity_bytes_per_s):
        assert np.unique(cluster.bandwidth_bytes_per_s[wiring.class_of_link == cell]).tolist() == [capacity]
