from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.models import FabricTopology, Node, ScaleUpKind
from clustersim.topology import FABRICS, SCALE_UP
from clustersim.topology.build import build_cluster
from clustersim.topology.cluster import TIERS, Routes
from clustersim.topology.wired import WiredCluster
from tests.unit.topology.factories import accelerator_name, all_pairs, make_fabric, make_node


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
def clusters(draw: st.DrawFn) -> WiredCluster:
    topology: FabricTopology = draw(st.sampled_from(list(FABRICS)))
    fabric = make_fabric(
        topology,
        nodes_per_leaf=draw(st.integers(1, 3)),
        leaves_per_pod=draw(st.integers(1 if topology == "fat_tree" else 0, 4)),
        oversubscription=draw(st.sampled_from([1.0, 2.0, 7.0])),
        core_oversubscription=draw(st.sampled_from([1.0, 3.0])),
    )
    return build_cluster(draw(nodes()), draw(st.integers(1, 7)), fabric)


def rows(routes: Routes) -> list[list[int]]:
    return [[int(link_id) for link_id in routes.link_ids[begin:end]] for begin, end in pairwise(routes.starts)]


@settings(deadline=None, max_examples=150)
@given(clusters())
def test_every_route_connects_its_ranks(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    ends = [cluster.ends(link_id) for link_id in range(len(cluster.links))]

    for source, destination, row in zip(sources, destinations, rows(cluster.routes(sources, destinations)), strict=True):
        place = accelerator_name(cluster, int(source))
        for link_id in row:
            tail, head = ends[link_id]
            assert tail == place
            place = head
        assert place == accelerator_name(cluster, int(destination))


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_no_route_passes_a_place_twice(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    heads = [cluster.ends(link_id)[1] for link_id in range(len(cluster.links))]

    for row in rows(cluster.routes(sources, destinations)):
        passed = [heads[link_id] for link_id in row]
        assert len(set(passed)) == len(passed)


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_the_way_back_runs_through_the_same_places(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    ends = [cluster.ends(link_id) for link_id in range(len(cluster.links))]
    there, back = cluster.routes(sources, destinations), cluster.routes(destinations, sources)

    for forth, reverse in zip(rows(there), rows(back), strict=True):
        assert [ends[link_id] for link_id in forth] == [ends[link_id][::-1] for link_id in reversed(reverse)]
        assert [cluster.tier_index[link_id] for link_id in forth] == [cluster.tier_index[link_id] for link_id in reversed(reverse)]
    np.testing.assert_allclose(there.latency_s, back.latency_s, rtol=1e-12)  # summed in the other order


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_what_leaves_a_rank_arrives_whole(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    routes = cluster.routes(sources, destinations)

    for index, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        surplus: dict[str, float] = {accelerator_name(cluster, int(source)): -1.0}
        surplus[accelerator_name(cluster, int(destination))] = surplus.get(accelerator_name(cluster, int(destination)), 0.0) + 1.0
        for place in range(int(routes.starts[index]), int(routes.starts[index + 1])):
            tail, head = cluster.ends(int(routes.link_ids[place]))
            surplus[tail] = surplus.get(tail, 0.0) + routes.weights[place]
            surplus[head] = surplus.get(head, 0.0) - routes.weights[place]
        assert all(abs(value) < 1e-12 for value in surplus.values())


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_within_a_domain_no_adapter_is_touched_and_between_domains_exactly_two_are(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    same_domain = cluster.domain_of(sources) == cluster.domain_of(destinations)

    for same, row in zip(same_domain, rows(cluster.routes(sources, destinations)), strict=True):
        tiers = [TIERS[cluster.tier_index[link_id]] for link_id in row]
        assert tiers.count("nic") == (0 if same else 2)
        assert not (same and {"leaf", "spine"} & set(tiers))


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_adapters_are_those_that_the_ranks_are_given(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    own, peer = cluster.nic_of(sources), cluster.nic_of(destinations)

    for index, row in enumerate(rows(cluster.routes(sources, destinations))):
        names = [cluster.link_name(link_id) for link_id in row if "nic" in cluster.link_name(link_id)]
        if names:
            per_node = cluster.wiring.n_adapters
            adapters = [f"node{adapter // per_node}/nic{adapter % per_node}" for adapter in (int(own[index]), int(peer[index]))]
            assert names == [f"{adapters[0]}/tx", f"{adapters[1]}/rx"]


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_latency_is_the_sum_over_the_links(cluster: WiredCluster) -> None:
    sources, destinations = all_pairs(cluster.n_ranks)
    routes = cluster.routes(sources, destinations)

    sums = [sum(cluster.links[link_id].latency_s for link_id in row) for row in rows(routes)]

    np.testing.assert_allclose(routes.latency_s, sums, rtol=1e-12)  # numpy sums in another order


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_every_link_of_the_network_is_on_some_route(cluster: WiredCluster) -> None:
    routes = cluster.routes(*all_pairs(cluster.n_ranks))

    unused = np.setdiff1d(np.arange(len(cluster.links)), routes.link_ids)

    if cluster.n_domains > 1 and cluster.node.scale_up.nodes_per_domain == 1:
        assert not [cluster.link_name(int(link_id)) for link_id in unused if TIERS[cluster.tier_index[link_id]] in ("nic", "leaf", "spine")]


@settings(deadline=None, max_examples=50)
@given(clusters(), st.integers(0, 2**32 - 1))
def test_pairs_do_not_depend_on_their_company(cluster: WiredCluster, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sources = generator.integers(0, cluster.n_ranks, 20)
    destinations = generator.integers(0, cluster.n_ranks, 20)

    together = rows(cluster.routes(sources, destinations))

    alone = [rows(cluster.routes(sources[i : i + 1], destinations[i : i + 1]))[0] for i in range(20)]
    assert together == alone


@pytest.mark.parametrize("kind", list(SCALE_UP))
@pytest.mark.parametrize("topology", list(FABRICS))
def test_every_kind_goes_with_every_fabric(kind: ScaleUpKind, topology: FabricTopology) -> None:
    cluster = build_cluster(make_node(kind), 5, make_fabric(topology, leaves_per_pod=2))
    sources, destinations = all_pairs(cluster.n_ranks)

    lengths = np.diff(cluster.routes(sources, destinations).starts)

    np.testing.assert_array_equal(lengths == 0, sources == destinations)
