from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange, links_between
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_fabric, make_node, make_servers

RAILS = make_fabric(nodes_per_leaf=2)
PODS = make_fabric("fat_tree", nodes_per_leaf=1, leaves_per_pod=2)


def wired(fabric: Fabric = RAILS, n_nodes: int = 4) -> Cluster:
    return build_cluster(make_node(), n_nodes, fabric, servers=make_servers(1))


def singles(fabric: Fabric) -> Cluster:
    return build_cluster(make_node(), 4, replace(fabric, routing="ecmp"))


def forward(cluster: Cluster, low: str, high: str) -> list[str]:
    found = links_between(cluster, (low, high))
    return [cluster.link_name(link) for links in found.forward.values() for link in links]


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        ("node0/gpu3", "domain0/nvswitch", ["node0/gpu3/nvlink/up"]),
        ("node0/gpu3", "nvswitch", ["node0/gpu3/nvlink/up"]),
        ("node0/pcie1", "node0/gpu3", ["node0/gpu3/pcie/down"]),
        ("node0/pcie1", "node0/socket0", ["node0/pcie1/up"]),
        ("node2/socket1", "node2/socket0", ["node2/socket1/to0"]),
        ("node0/nic1", "leaf1", ["node0/nic1/tx"]),
        ("leaf1", "node0/nic1", ["node0/nic1/rx"]),
        ("node0/pcie0", "leaf1", ["node0/nic1/tx"]),
        ("node1/nic[0,2-3]", "leaf*", ["node1/nic0/tx", "node1/nic2/tx", "node1/nic3/tx"]),
        ("node[0-1]/nic0", "leaf0", ["node0/nic0/tx", "node1/nic0/tx"]),
        ("node*/nic7", "*", ["node0/nic7/tx", "node1/nic7/tx", "node2/nic7/tx", "node3/nic7/tx"]),
        ("server0/nic0", "leaf16", ["server0/nic0/tx"]),
        ("leaf1", "pod0/spines", ["leaf1/up"]),
        ("spines", "leaf1", ["leaf1/down"]),
    ],
)
def test_links_are_found_by_what_they_join(low: str, high: str, names: list[str]) -> None:
    assert forward(wired(), low, high) == names


def test_the_other_direction_is_found_too() -> None:
    cluster = wired()
    found = links_between(cluster, ("node0/nic1", "leaf1"))

    assert [cluster.link_name(link) for links in found.backward.values() for link in links] == ["node0/nic1/rx"]


@pytest.mark.parametrize(
    ("low", "high", "n_links"),
    [
        ("leaf1", "spine0", 8),
        ("leaf1", "spine*", 8),
        ("leaf1", "spines", 8),
        ("leaf1", "pod0/spines", 8),
        ("leaf*", "spine0", 32),
    ],
)
def test_spines_are_named_alone_or_together(low: str, high: str, n_links: int) -> None:
    assert len(forward(singles(make_fabric("leaf_spine", nodes_per_leaf=1)), low, high)) == n_links


@pytest.mark.parametrize(
    ("low", "high", "n_links"),
    [("leaf3", "pod1/spine0", 8), ("leaf3", "spines", 8), ("pod1/spine0", "core0", 16), ("pod*/spine0", "core", 32)],
)
def test_spines_of_several_pods_stand_with_their_pod(low: str, high: str, n_links: int) -> None:
    assert len(forward(singles(PODS), low, high)) == n_links


@pytest.mark.parametrize(
    ("low", "high", "path", "message", "hint"),
    [
        ("node4/nic1", "leaf1", "between.0", "there is no 'node4'", "nodes are node0 to node3, servers server0 to server0"),
        ("server1/nic0", "leaf1", "between.0", "there is no 'server1'", "nodes are node0 to node3, servers server0 to server0"),
        ("node0/gpu8", "nvswitch", "between.0", "there is no 'node0/gpu8'", "did you mean 'node0/gpu7'?"),
        ("node9", "leaf1", "between.0", "a node is not one end of a link", "name an adapter such as node3/nic0"),
        ("node0/nic1", "leef1", "between.1", "there is no 'leef1'", "did you mean 'leaf1'?"),
        ("node0/nic1", "leaf2", "between", "no link joins 'node0/nic1' and 'leaf2'", "'node0/nic1' is joined to leaf1"),
        ("node0/nic1", "node1/nic1", "between", "no link joins 'node0/nic1' and 'node1/nic1'", "'node0/nic1' is joined to leaf1"),
        ("leaf0", "leaf1", "between", "no link joins 'leaf0' and 'leaf1'", "'leaf0' is joined to pod0/spines"),
        ("leaf0", "core", "between.1", "there is no 'core'", None),
        ("node[0-", "leaf0", "between.0", None, None),
        ("node[a]", "leaf0", "between.0", "'[a]' is not a range of numbers", "write such as [0-3] or [0,2,5]"),
        ("node[3-1]", "leaf0", "between.0", "'[3-1]' is not a range of numbers", "write such as [0-3] or [0,2,5]"),
        ("", "leaf0", "between.0", "there is no ''", None),
        ("node0/gpu0", "pod0/spines", "between", "no link joins 'node0/gpu0' and 'pod0/spines'", None),
    ],
)
def test_a_name_that_means_nothing_here_is_refused(low: str, high: str, path: str, message: str | None, hint: str | None) -> None:
    with pytest.raises(DomainError) as caught:
        forward(wired(), low, high)

    assert ".".join(map(str, caught.value.path)) == path
    assert message is None or caught.value.message == message
    assert caught.value.hint if hint is None else caught.value.hint == hint


@pytest.mark.parametrize("name", ["leaf0", "node0/nic0"])
def test_one_node_has_no_network_whose_parts_can_be_named(name: str) -> None:
    cluster = build_cluster(make_node("pcie"), 1)

    with pytest.raises(DomainError, match=f"there is no '{name}'; a cluster of one node has no network links"):
        forward(cluster, name, "leaf1")


def test_names_in_a_large_cluster_are_found_in_a_moment() -> None:
    fabric = make_fabric(nodes_per_leaf=32, routing="ecmp")

    cluster = build_cluster(make_node(), 2048, fabric, changes=[LinkChange(between=("node77/nic3", "leaf*"), fraction=0.5)])

    assert sum(link.bandwidth_bytes_per_s == 12.5e9 for link in cluster.links if link.tier == "nic") == 2
