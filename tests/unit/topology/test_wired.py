from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster import link_values
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import (
    CABLE_S,
    LEAF_S,
    NIC_S,
    SERVER_NIC_S,
    SPINE_S,
    adapters_of,
    make_fabric,
    make_node,
    make_servers,
    ranks,
    route,
)

THREE_TIERS = make_fabric("fat_tree", nodes_per_leaf=2, leaves_per_pod=2)


def test_ranks_count_accelerators_node_by_node() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=2, nodes_per_domain=2), 6)

    np.testing.assert_array_equal(cluster.node_of(ranks(0, 3, 4, 23)), [0, 0, 1, 5])
    np.testing.assert_array_equal(cluster.local_index_of(ranks(0, 3, 4, 23)), [0, 3, 0, 3])
    np.testing.assert_array_equal(cluster.domain_of(ranks(0, 7, 8, 23)), [0, 0, 1, 2])
    np.testing.assert_array_equal(adapters_of(cluster, ranks(0, 1, 2, 4, 23)), [0, 0, 1, 2, 11])
    assert cluster.n_domains == 3


def test_hosts_come_after_the_ranks() -> None:
    cluster = build_cluster(make_node(), 3, servers=make_servers(2))

    assert (cluster.n_ranks, cluster.n_hosts) == (24, 5)
    np.testing.assert_array_equal(cluster.host_endpoint(ranks(0, 2, 4)), [24, 26, 28])
    assert [cluster.endpoint_name(endpoint) for endpoint in (5, 26, 28)] == ["rank 5", "the host of node 2", "server 1"]
    assert [cluster.links[int(link)].name for link in cluster.memory_link(ranks(0, 2, 4))] == [
        "node0/memory",
        "node2/memory",
        "server1/memory",
    ]


@pytest.mark.parametrize("method", ["host_endpoint", "memory_link"])
@pytest.mark.parametrize("host", [-1, 5])
def test_a_host_outside_is_refused(method: str, host: int) -> None:
    cluster = build_cluster(make_node(), 3, servers=make_servers(2))

    with pytest.raises(DomainError, match=f"host {host} is outside the cluster; its hosts are 0 to 4"):
        getattr(cluster, method)(ranks(0, host))


def names(cluster: Cluster, source: int, destination: int) -> list[str]:
    return [link.name for link in route(cluster, source, destination)]


def test_a_host_is_reached_by_the_socket_of_whoever_asks() -> None:
    cluster = build_cluster(make_node(), 2)

    assert names(cluster, 5, 16) == ["node0/gpu5/pcie/up", "node0/pcie2/up"]
    assert names(cluster, 16, 5) == ["node0/pcie2/down", "node0/gpu5/pcie/down"]
    assert names(cluster, 16, 16) == []


def test_a_rank_reaches_a_host_elsewhere_by_its_own_adapter_and_the_one_of_its_rail_there() -> None:
    cluster = build_cluster(make_node(), 2)

    assert names(cluster, 5, 17) == ["node0/gpu5/pcie/up", "node0/nic5/tx", "node1/nic5/rx", "node1/pcie2/up"]
    assert names(cluster, 17, 5) == ["node1/pcie2/down", "node1/nic5/tx", "node0/nic5/rx", "node0/gpu5/pcie/down"]


def test_hosts_use_all_their_adapters_in_turn() -> None:
    cluster = build_cluster(make_node(), 9, make_fabric(nodes_per_leaf=16))
    hosts = cluster.host_endpoint(np.arange(9, dtype=np.int64))

    used = [names(cluster, int(hosts[0]), int(hosts[peer]))[1] for peer in range(1, 9)]

    assert used == [f"node0/nic{peer % 8}/tx" for peer in range(1, 9)]


def test_a_server_answers_on_the_rail_of_whoever_asks_as_far_as_it_has_one() -> None:
    cluster = build_cluster(make_node(), 2, make_fabric(nodes_per_leaf=4), servers=make_servers(1, n_nics=4))
    server = int(cluster.host_endpoint(ranks(2))[0])

    assert names(cluster, 4, server) == ["node0/gpu4/pcie/up", "node0/nic4/tx", "server0/nic2/rx"]
    assert names(cluster, server, 5) == ["server0/nic2/tx", "leaf4/up", "leaf5/down", "node0/nic5/rx", "node0/gpu5/pcie/down"]


def test_a_server_with_more_adapters_than_there_are_rails_gives_each_node_another() -> None:
    cluster = build_cluster(make_node(n_nics=1), 4, make_fabric("single_switch"), servers=make_servers(1, n_nics=3))
    server = int(cluster.host_endpoint(ranks(4))[0])

    used = [names(cluster, 8 * node, server)[-1] for node in range(4)]

    assert used == ["server0/nic0/rx", "server0/nic1/rx", "server0/nic2/rx", "server0/nic0/rx"]


def test_servers_talk_to_each_other_and_to_hosts_of_nodes() -> None:
    cluster = build_cluster(make_node(), 2, make_fabric("leaf_spine", nodes_per_leaf=2), servers=make_servers(2, n_nics=2))
    node, first, second = (int(endpoint) for endpoint in cluster.host_endpoint(ranks(1, 2, 3)))

    assert names(cluster, first, second) == ["server0/nic1/tx", "server1/nic1/rx"]
    assert names(cluster, first, node) == ["server0/nic0/tx", "leaf1/up", "leaf0/down", "node1/nic3/rx", "node1/pcie1/up"]
    assert names(cluster, first, first) == []


def test_a_server_adds_the_latency_of_its_own_adapter() -> None:
    cluster = build_cluster(make_node(), 1, make_fabric("single_switch"), servers=make_servers(1))

    latency_s = cluster.routes(ranks(0), ranks(9)).latency_s[0]

    assert latency_s == pytest.approx(NIC_S + SERVER_NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_in_a_rack_a_host_reaches_another_tray_over_nvlink_by_the_accelerator_with_the_number_of_its_peer() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=3), 4)
    host = int(cluster.host_endpoint(ranks(0))[0])

    assert names(cluster, host, 6) == ["node0/pcie1/down", "node0/gpu2/pcie/down", "node0/gpu2/nvlink/up", "node1/gpu2/nvlink/down"]
    assert names(cluster, 6, host) == ["node1/gpu2/nvlink/up", "node0/gpu2/nvlink/down", "node0/gpu2/pcie/up", "node0/pcie1/up"]
    assert names(cluster, host, host + 1)[2:4] == ["node0/gpu1/nvlink/up", "node1/gpu1/nvlink/down"]
    assert names(cluster, host, 14)[1] == "node0/nic2/tx"


def test_the_ports_of_a_rank_lead_to_and_from_its_switch() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=2), 3)

    ports = cluster.switch_ports(ranks(0, 11))

    assert [[cluster.link_name(int(link)) for link in pair] for pair in ports] == [
        ["node0/gpu0/nvlink/up", "node0/gpu0/nvlink/down"],
        ["node2/gpu3/nvlink/up", "node2/gpu3/nvlink/down"],
    ]


def test_without_a_switch_there_are_no_ports() -> None:
    with pytest.raises(DomainError, match="box joins its accelerators without a switch") as caught:
        build_cluster(make_node("cube_mesh"), 1).switch_ports(ranks(0))

    assert caught.value.hint == "choose a node with scale-up of kind nvswitch"


def test_a_port_that_is_down_is_no_port() -> None:
    cluster = build_cluster(make_node(), 2, changes=[LinkChange(between=("node1/gpu3", "nvswitch"), state="down")])

    with pytest.raises(DomainError, match="node1/gpu3/nvlink/up is down; choose an algorithm without the switch"):
        cluster.switch_ports(ranks(10, 11))
    assert cluster.switch_ports(ranks(10, 12)).shape == (2, 2)


def test_the_ways_to_and_from_a_leaf_are_the_ends_of_a_route() -> None:
    cluster = build_cluster(make_node(n_nics=4), 8, THREE_TIERS)

    up, down = cluster.to_leaf(ranks(3, 61)), cluster.from_leaf(ranks(3, 61))

    assert [cluster.link_name(int(link)) for link in up.link_ids] == [
        *("node0/gpu3/pcie/up", "node0/nic1/tx"),
        *("node7/gpu5/pcie/up", "node7/nic2/tx"),
    ]
    assert [cluster.link_name(int(link)) for link in down.link_ids[down.starts[1] :]] == ["node7/nic2/rx", "node7/gpu5/pcie/down"]
    np.testing.assert_array_equal(cluster.leaf_of(ranks(3, 61)), [0, 3])


@pytest.mark.parametrize("method", ["to_leaf", "from_leaf", "leaf_of"])
def test_without_a_fabric_there_are_no_leaves(method: str) -> None:
    cluster = build_cluster(make_node(), 1)

    assert cluster.n_leaves == 0
    with pytest.raises(DomainError, match="nothing is laid between 1 node"):
        getattr(cluster, method)(ranks(0))


def test_a_host_that_is_cut_off_is_an_error_when_it_is_asked_for() -> None:
    lost = [LinkChange(between=(f"node0/pcie{switch}", "node0/socket*"), state="down") for switch in range(4)]
    cluster = build_cluster(make_node(), 2, changes=lost)

    with pytest.raises(DomainError, match="no way leads from rank 9 to the host of node 0"):
        cluster.routes(ranks(9), ranks(16))
    assert len(cluster.routes(ranks(9), ranks(0)).link_ids) > 0


@pytest.mark.parametrize("method", ["node_of", "local_index_of", "domain_of"])
def test_no_place_is_given_to_a_rank_outside(method: str) -> None:
    cluster = build_cluster(make_node(), 2)

    with pytest.raises(DomainError, match="rank 16 is outside"):
        getattr(cluster, method)(ranks(3, 16))


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


def test_sources_without_destinations_are_refused() -> None:
    with pytest.raises(DomainError, match="2 sources do not match 1 destinations"):
        build_cluster(make_node(), 2).routes(ranks(0, 1), ranks(2))


def test_links_are_a_sequence() -> None:
    links = build_cluster(make_node(), 8, THREE_TIERS).links

    assert links[-1] == links[len(links) - 1]
    assert [link.name for link in links[-9:-7]] == ["pod1/down", "node0/memory"]
    assert [link.name for link in links[:2]] == ["node0/gpu0/nvlink/up", "node0/gpu0/nvlink/down"]
    assert len(list(links)) == len(links)
    with pytest.raises(IndexError):
        links[len(links)]


def test_changed_arrays_show_in_the_links() -> None:
    cluster = build_cluster(make_node(), 1)

    halved = dataclasses.replace(cluster, bandwidth_bytes_per_s=link_values(np.asarray(cluster.bandwidth_bytes_per_s) / 2))

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
