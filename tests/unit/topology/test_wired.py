from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clustersim.errors import ScenarioError
from clustersim.topology.build import build_cluster
from clustersim.topology.cluster import TIERS, route
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SPINE_S, make_fabric, make_node, ranks

THREE_TIERS = make_fabric("fat_tree", nodes_per_leaf=2, leaves_per_pod=2)


def test_ranks_count_accelerators_node_by_node() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=2, nodes_per_domain=2), 6)

    np.testing.assert_array_equal(cluster.node_of(ranks(0, 3, 4, 23)), [0, 0, 1, 5])
    np.testing.assert_array_equal(cluster.local_index_of(ranks(0, 3, 4, 23)), [0, 3, 0, 3])
    np.testing.assert_array_equal(cluster.domain_of(ranks(0, 7, 8, 23)), [0, 0, 1, 2])
    np.testing.assert_array_equal(cluster.nic_of(ranks(0, 1, 2, 4, 23)), [0, 0, 1, 2, 11])
    assert cluster.n_domains == 3


def test_a_node_without_adapters_has_no_nic_of() -> None:
    cluster = build_cluster(make_node(n_nics=0), 1)

    with pytest.raises(ScenarioError, match="no network adapters"):
        cluster.nic_of(ranks(0))


@pytest.mark.parametrize("method", ["node_of", "local_index_of", "domain_of", "nic_of"])
def test_no_place_is_given_to_a_rank_outside(method: str) -> None:
    cluster = build_cluster(make_node(), 2)

    with pytest.raises(ScenarioError, match="rank 16 is outside"):
        getattr(cluster, method)(ranks(3, 16))


def test_below_one_leaf_traffic_does_not_climb() -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    assert [link.tier for link in route(cluster, 0, 8 + 5)] == ["pcie", "nic", "nic", "pcie"]


def test_below_one_pod_traffic_does_not_reach_the_core() -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    names = [link.name for link in route(cluster, 0, 8 * 3)]

    assert names == ["node0/gpu0/pcie/up", "node0/nic0/tx", "leaf0/up", "leaf1/down", "node3/nic0/rx", "node3/gpu0/pcie/down"]


def test_between_pods_traffic_crosses_the_core() -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    links = route(cluster, 8 * 7 + 2, 5)

    assert [link.name for link in links[2:-2]] == ["leaf3/up", "pod1/up", "pod0/down", "leaf0/down"]
    assert [link.tier for link in links[2:-2]] == ["leaf", "spine", "spine", "leaf"]


def test_on_one_rail_a_unit_is_one_hop_and_between_rails_it_is_three() -> None:
    cluster = build_cluster(make_node(), 4, make_fabric("rail_optimized", nodes_per_leaf=4))

    same_rail, cross_rail = route(cluster, 3, 8 + 3), route(cluster, 3, 8 + 4)

    assert [link.tier for link in same_rail] == ["pcie", "nic", "nic", "pcie"]
    assert [link.name for link in cross_rail[2:-2]] == ["leaf3/up", "leaf4/down"]


@pytest.mark.parametrize(
    ("destination_node", "n_cables", "n_leaves", "n_spines"),
    [(1, 2, 1, 0), (2, 4, 2, 1), (4, 6, 2, 3)],
    ids=["same leaf", "same pod", "across the core"],
)
def test_a_route_takes_the_latency_of_all_it_passes(destination_node: int, n_cables: int, n_leaves: int, n_spines: int) -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    links = route(cluster, 0, 8 * destination_node)

    expected_s = 2 * NIC_S + n_cables * CABLE_S + n_leaves * LEAF_S + n_spines * SPINE_S  # the core is made of spine switches
    assert sum(link.latency_s for link in links) == pytest.approx(expected_s, rel=1e-12)
    assert cluster.routes(ranks(0), ranks(8 * destination_node)).latency_s[0] == pytest.approx(expected_s, rel=1e-12)


def test_many_pairs_come_in_compressed_rows() -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    routes = cluster.routes(ranks(0, 5, 0, 0), ranks(1, 5, 8, 63))

    np.testing.assert_array_equal(routes.starts, [0, 2, 2, 6, 14])
    np.testing.assert_array_equal(routes.weights, np.ones(14))
    assert routes.latency_s[1] == 0.0
    assert [cluster.link_name(int(link_id)) for link_id in routes.link_ids[:2]] == ["node0/gpu0/nvlink/up", "node0/gpu1/nvlink/down"]


def test_no_pairs_have_no_routes() -> None:
    routes = build_cluster(make_node(), 8).routes(ranks(), ranks())

    assert list(routes.starts) == [0]
    assert len(routes.link_ids) == len(routes.latency_s) == 0


def test_sources_without_destinations_are_refused() -> None:
    with pytest.raises(ScenarioError, match="2 sources do not match 1 destinations"):
        build_cluster(make_node(), 2).routes(ranks(0, 1), ranks(2))


def test_links_are_a_sequence() -> None:
    links = build_cluster(make_node(), 8, THREE_TIERS).links

    assert links[-1] == links[len(links) - 1]
    assert links[-1].name == "pod1/down"
    assert [link.name for link in links[:2]] == ["node0/gpu0/nvlink/up", "node0/gpu0/nvlink/down"]
    assert len(list(links)) == len(links)
    with pytest.raises(IndexError):
        links[len(links)]


def test_link_names_are_unique() -> None:
    names = [link.name for link in build_cluster(make_node(), 8, THREE_TIERS).links]

    assert len(set(names)) == len(names)


def test_changed_arrays_show_in_the_links() -> None:
    cluster = build_cluster(make_node(), 1)

    halved = dataclasses.replace(cluster, bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s / 2)

    assert halved.links[0].bandwidth_bytes_per_s == cluster.links[0].bandwidth_bytes_per_s / 2


@pytest.mark.parametrize(
    ("name", "tail", "head"),
    [
        ("node3/gpu2/nvlink/up", "node3/gpu2", "domain3/nvswitch"),
        ("node3/gpu2/pcie/up", "node3/gpu2", "node3/pcie1"),
        ("node3/pcie1/up", "node3/pcie1", "node3/socket0"),
        ("node3/socket1/to0", "node3/socket1", "node3/socket0"),
        ("node3/nic5/tx", "node3/pcie2", "leaf1"),
        ("node3/nic5/rx", "leaf1", "node3/pcie2"),
        ("leaf2/up", "leaf2", "pod1/spines"),
        ("leaf2/down", "pod1/spines", "leaf2"),
        ("pod1/up", "pod1/spines", "core"),
        ("pod1/down", "core", "pod1/spines"),
    ],
)
def test_each_link_knows_its_ends(name: str, tail: str, head: str) -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)
    link_id = next(link_id for link_id in range(len(cluster.links)) if cluster.link_name(link_id) == name)

    assert cluster.ends(link_id) == (tail, head)


def test_an_adapter_of_a_rail_hangs_at_the_leaf_of_its_rail() -> None:
    cluster = build_cluster(make_node(), 4, make_fabric(nodes_per_leaf=2))
    ends = {cluster.link_name(link_id): cluster.ends(link_id) for link_id in range(len(cluster.links))}

    assert ends["node1/nic6/tx"][1] == "leaf6"
    assert ends["node2/nic6/tx"][1] == "leaf14"


def test_tiers_of_the_array_are_those_of_the_links() -> None:
    cluster = build_cluster(make_node(), 8, THREE_TIERS)

    assert [TIERS[index] for index in cluster.tier_index] == [link.tier for link in cluster.links]
