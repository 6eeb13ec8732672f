from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.models import Fabric, FabricTopology, Node, ScaleUpKind
from clustersim.topology import FABRICS, SCALE_UP
from clustersim.topology.cluster import TIERS, IntArray, Routes
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import TREES, accelerator_name, adapters_of, all_pairs, fitted, make_fabric, make_node, make_servers


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    kind: ScaleUpKind = draw(st.sampled_from(list(SCALE_UP)))
    most = 8 if kind in ("cube_mesh", "full_mesh") else 10
    return make_node(
        kind,
        n_accelerators=draw(st.integers(1, most)),
        n_nics=draw(st.integers(1, 20)),
        accelerators_per_pcie_switch=draw(st.integers(1, 8)),
        n_sockets=draw(st.integers(1, 4)),
        nodes_per_domain=draw(st.integers(1, 3)) if kind == "nvswitch" else 1,
        scale_up_links=draw(st.sampled_from([4, 6])) if kind == "cube_mesh" else None,
    )


@st.composite
def fabrics(draw: st.DrawFn, topology: FabricTopology) -> Fabric:
    return make_fabric(
        topology,
        nodes_per_leaf=draw(st.integers(1, 3)),
        leaves_per_pod=draw(st.integers(1 if topology == "fat_tree" else 0, 4)),
        oversubscription=draw(st.sampled_from([1.0, 2.0, 7.0])),
        core_oversubscription=draw(st.sampled_from([1.0, 3.0])),
        leaves_per_group=draw(st.integers(1, 3)),
        global_links=draw(st.integers(6, 8)),
        n_ports=draw(st.sampled_from([4, 16, 64])),
        seed=draw(st.integers(0, 9)),
    )


@st.composite
def trees(draw: st.DrawFn) -> Cluster:
    """Fabrics in which every pair has one path."""
    return build_cluster(draw(nodes()), draw(st.integers(1, 7)), draw(fabrics(draw(st.sampled_from(TREES)))))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """All fabrics and ways to choose among paths, some with dedicated servers."""
    fabric = replace(draw(fabrics(draw(st.sampled_from(list(FABRICS))))), routing=draw(st.sampled_from(["adaptive", "ecmp"])))
    servers = make_servers(draw(st.integers(1, 2)), draw(st.integers(1, 3))) if draw(st.booleans()) else None
    n_places = draw(st.integers(3, 7))
    if fabric.topology == "torus":
        fabric = replace(
            fabric, dimensions=tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda d: 3 <= prod(d) <= 16)))
        )
        n_places = prod(fabric.dimensions)
    elif fabric.topology == "graph":
        fabric = fitted(fabric, n_places)
    return build_cluster(draw(nodes()), n_places - (servers.n_hosts if servers else 0), fabric, servers=servers)


def rows(routes: Routes) -> list[list[int]]:
    return [[int(link_id) for link_id in routes.link_ids[begin:end]] for begin, end in pairwise(routes.starts)]


def endpoint_pairs(cluster: Cluster, seed: int) -> tuple[IntArray, IntArray]:
    """Return some pairs of ranks and host memories."""
    generator = np.random.default_rng(seed)
    n_endpoints = cluster.n_ranks + cluster.n_hosts
    return generator.integers(0, n_endpoints, 60), generator.integers(0, n_endpoints, 60)


def ends_of(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the ends of all links; the sockets of a host are one place, at which its memory hangs."""
    named = [cluster.ends(link_id) for link_id in range(len(cluster.links))]
    return [(_merged(tail), _merged(head)) for tail, head in named]


def place_of(cluster: Cluster, endpoint: int) -> str:
    if endpoint < cluster.n_ranks:
        return accelerator_name(cluster, endpoint)
    host = endpoint - cluster.n_ranks
    return f"node{host}/sockets" if host < cluster.n_nodes else f"server{host - cluster.n_nodes}/sockets"


def _merged(end: str) -> str:
    place, _, part = end.partition("/")
    return f"{place}/sockets" if part.startswith("socket") else end


@settings(deadline=None, max_examples=50)
@given(trees())
def test_every_route_connects_its_ranks(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    ends = [cluster.ends(link_id) for link_id in range(len(cluster.links))]

    for source, destination, row in zip(sources, destinations, rows(cluster.routes(sources, destinations)), strict=True):
        place = accelerator_name(cluster, int(source))
        for link_id in row:
            tail, head = ends[link_id]
            assert tail == place
            place = head
        assert place == accelerator_name(cluster, int(destination))


@settings(deadline=None, max_examples=60)
@given(trees())
def test_no_route_passes_a_place_twice(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    heads = [cluster.ends(link_id)[1] for link_id in range(len(cluster.links))]

    for row in rows(cluster.routes(sources, destinations)):
        passed = [heads[link_id] for link_id in row]
        assert len(set(passed)) == len(passed)


@settings(deadline=None, max_examples=60)
@given(trees())
def test_the_way_back_runs_through_the_same_places(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    ends = [cluster.ends(link_id) for link_id in range(len(cluster.links))]
    there, back = cluster.routes(sources, destinations), cluster.routes(destinations, sources)

    for forth, reverse in zip(rows(there), rows(back), strict=True):
        assert [ends[link_id] for link_id in forth] == [ends[link_id][::-1] for link_id in reversed(reverse)]
        assert [cluster.tier_index[link_id] for link_id in forth] == [cluster.tier_index[link_id] for link_id in reversed(reverse)]
    np.testing.assert_allclose(there.latency_s, back.latency_s, rtol=1e-12)  # summed in the other order


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 99))
def test_the_way_back_takes_as_many_links_and_as_long(cluster: Cluster, seed: int) -> None:
    sources, destinations = endpoint_pairs(cluster, seed)

    there, back = cluster.routes(sources, destinations), cluster.routes(destinations, sources)

    lengths = [np.add.reduceat(np.append(routes.weights, 0.0), routes.starts[:-1]) for routes in (there, back)]
    busy = (np.diff(there.starts) > 0) & (np.diff(back.starts) > 0)
    np.testing.assert_allclose(lengths[0][busy], lengths[1][busy], rtol=1e-12)  # shares add up to one path
    np.testing.assert_allclose(there.latency_s, back.latency_s, rtol=1e-12)  # summed in the other order


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 99))
def test_what_leaves_an_endpoint_arrives_whole(cluster: Cluster, seed: int) -> None:
    sources, destinations = endpoint_pairs(cluster, seed)
    routes = cluster.routes(sources, destinations)
    ends = ends_of(cluster)

    for index, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        surplus = {place_of(cluster, int(source)): -1.0}
        surplus[place_of(cluster, int(destination))] = surplus.get(place_of(cluster, int(destination)), 0.0) + 1.0
        for place in range(int(routes.starts[index]), int(routes.starts[index + 1])):
            tail, head = ends[int(routes.link_ids[place])]
            surplus[tail] = surplus.get(tail, 0.0) + routes.weights[place]
            surplus[head] = surplus.get(head, 0.0) - routes.weights[place]
        assert all(abs(value) < 1e-12 for value in surplus.values())


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 99))
def test_no_route_contains_a_memory(cluster: Cluster, seed: int) -> None:
    routes = cluster.routes(*endpoint_pairs(cluster, seed))

    assert TIERS.index("memory") not in cluster.tier_index[routes.link_ids]


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_hashed_flows_take_one_path(cluster: Cluster) -> None:
    if cluster.fabric.routing == "ecmp":
        sources, destinations = all_pairs(cluster.n_ranks)
        ends = [cluster.ends(link_id) for link_id in range(len(cluster.links))]
        routes = cluster.routes(sources, destinations)

        np.testing.assert_array_equal(routes.weights, 1.0)
        for row in rows(routes):
            assert all(ends[before][1] == ends[after][0] for before, after in pairwise(row))


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_within_a_domain_no_adapter_is_touched_and_between_domains_exactly_two_are(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    same_domain = cluster.domain_of(sources) == cluster.domain_of(destinations)

    for same, row in zip(same_domain, rows(cluster.routes(sources, destinations)), strict=True):
        tiers = [TIERS[cluster.tier_index[link_id]] for link_id in row]
        assert tiers.count("nic") == (0 if same else 2)
        assert not (same and {"leaf", "spine"} & set(tiers))


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_adapters_are_those_that_the_ranks_are_given(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    own, peer = adapters_of(cluster, sources), adapters_of(cluster, destinations)

    for index, row in enumerate(rows(cluster.routes(sources, destinations))):
        names = [cluster.link_name(link_id) for link_id in row if "nic" in cluster.link_name(link_id)]
        if names:
            per_node = cluster.groups[0].wiring.n_adapters
            adapters = [f"node{adapter // per_node}/nic{adapter % per_node}" for adapter in (int(own[index]), int(peer[index]))]
            assert names == [f"{adapters[0]}/tx", f"{adapters[1]}/rx"]


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_a_route_between_domains_is_the_way_to_a_leaf_and_the_way_from_one_with_the_fabric_between(cluster: Cluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    far = cluster.domain_of(sources) != cluster.domain_of(destinations)
    sources, destinations = sources[far], destinations[far]
    if len(sources):
        ups, downs = rows(cluster.to_leaf(sources)), rows(cluster.from_leaf(destinations))
        leaves, peers = cluster.leaf_of(sources), cluster.leaf_of(destinations)

        for index, row in enumerate(rows(cluster.routes(sources, destinations))):
            assert row[: len(ups[index])] == ups[index]
            assert row[len(row) - len(downs[index]) :] == downs[index]
            across = row[len(ups[index]) : len(row) - len(downs[index])]
            assert (len(across) == 0) == (leaves[index] == peers[index])
            assert {TIERS[cluster.tier_index[link_id]] for link_id in across} <= {"leaf", "spine"}


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 99))
def test_latency_is_the_sum_over_the_links_by_their_shares(cluster: Cluster, seed: int) -> None:
    routes = cluster.routes(*endpoint_pairs(cluster, seed))

    sums = [
        sum(cluster.links[int(routes.link_ids[place])].latency_s * routes.weights[place] for place in range(begin, end))
        for begin, end in pairwise(routes.starts)
    ]

    np.testing.assert_allclose(routes.latency_s, sums, rtol=1e-12)  # numpy sums in another order


@settings(deadline=None, max_examples=60)
@given(trees())
def test_every_link_of_the_network_is_on_some_route(cluster: Cluster) -> None:
    routes = cluster.routes(*all_pairs(cluster.n_ranks))

    unused = np.setdiff1d(np.arange(len(cluster.links)), routes.link_ids)

    if cluster.n_domains > 1 and cluster.node.scale_up.nodes_per_domain == 1:
        assert not [cluster.link_name(int(link_id)) for link_id in unused if TIERS[cluster.tier_index[link_id]] in ("nic", "leaf", "spine")]


@settings(deadline=None, max_examples=60)
@given(clusters(), st.integers(0, 99))
def test_pairs_do_not_depend_on_their_company(cluster: Cluster, seed: int) -> None:
    sources, destinations = endpoint_pairs(cluster, seed)

    together = rows(cluster.routes(sources, destinations))

    alone = [rows(cluster.routes(sources[i : i + 1], destinations[i : i + 1]))[0] for i in range(20)]
    assert together[:20] == alone
