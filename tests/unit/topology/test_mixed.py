"""Clusters of several kinds of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Node
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import (
    NIC_BYTES_PER_S,
    PCIE_BYTES_PER_S,
    bisection_bytes_per_s,
    make_fabric,
    make_node,
    make_servers,
    ranks,
    route,
)

SPINES = make_fabric("leaf_spine", nodes_per_leaf=2)


def slower(node: Node, name: str = "old box", share: float = 0.25) -> Node:
    """Return a node whose adapters and PCIe slots are narrower."""
    nic = replace(node.nic, bandwidth_bytes_per_s=share * node.nic.bandwidth_bytes_per_s)
    accelerator = replace(node.accelerator, name="old card", pcie_bandwidth_bytes_per_s=share * PCIE_BYTES_PER_S)
    return replace(node, name=name, nic=nic, accelerator=accelerator)


def mixed(*, servers: int = 0, changes: tuple[LinkChange, ...] = ()) -> Cluster:
    """Return two nodes of eight, two slow ones of eight, and two of four joined in pairs."""
    pairs = replace(make_node("bridge_pairs", n_accelerators=4, n_nics=2), name="pairs")
    kinds = ((make_node(), 2), (slower(make_node("cube_mesh")), 2), (pairs, 2))
    return build_mixed_cluster(kinds, SPINES, servers=make_servers(servers) if servers else None, changes=changes)


def names(cluster: Cluster, source: int, destination: int) -> list[str]:
    return [link.name for link in route(cluster, source, destination)]


def test_kinds_stand_in_order_and_the_first_is_the_node_of_the_cluster() -> None:
    cluster = mixed(servers=1)

    assert [(node.name, count) for node, count in cluster.kinds] == [("box", 2), ("old box", 2), ("pairs", 2)]
    assert (cluster.node.name, cluster.n_nodes, cluster.n_ranks, cluster.n_hosts) == ("box", 6, 40, 7)
    assert [cluster.node_at(node).name for node in range(6)] == ["box", "box", "old box", "old box", "pairs", "pairs"]
    assert cluster.kind_of(ranks(5, 0, 2)).tolist() == [2, 0, 1]


def test_a_cluster_of_one_kind_written_twice_is_the_same_as_one_of_twice_as_many() -> None:
    once, twice = build_cluster(make_node(), 4, SPINES), build_mixed_cluster(((make_node(), 1), (make_node(), 3)), SPINES)
    sources, destinations = np.divmod(np.arange(36 * 36, dtype=np.int64), 36)

    assert [link.name for link in once.links] == [link.name for link in twice.links]
    np.testing.assert_array_equal(once.bandwidth_bytes_per_s, twice.bandwidth_bytes_per_s)
    np.testing.assert_array_equal(once.latency_s, twice.latency_s)
    np.testing.assert_array_equal(once.routes(sources, destinations).link_ids, twice.routes(sources, destinations).link_ids)


def test_links_of_each_kind_have_their_own_bandwidth_and_a_leaf_that_of_what_hangs_below() -> None:
    width = {link.name: link.bandwidth_bytes_per_s for link in mixed().links}

    assert (width["node0/nic3/tx"], width["node2/nic3/tx"], width["node4/nic1/rx"]) == (
        NIC_BYTES_PER_S,
        NIC_BYTES_PER_S / 4,
        NIC_BYTES_PER_S,
    )
    assert (width["node1/gpu0/pcie/up"], width["node3/gpu0/pcie/up"]) == (PCIE_BYTES_PER_S, PCIE_BYTES_PER_S / 4)
    leaves = [width[f"leaf{leaf}/up"] / NIC_BYTES_PER_S for leaf in range(3)]
    assert leaves == pytest.approx([16, 4, 4], rel=1e-12)


def test_between_kinds_the_adapters_of_both_are_crossed() -> None:
    assert names(mixed(), 3, 38) == [
        *("node0/gpu3/pcie/up", "node0/nic3/tx", "leaf0/up"),
        *("leaf2/down", "node5/nic1/rx", "node5/gpu2/pcie/down"),
    ]


def test_a_host_answers_on_the_rail_of_whoever_asks_as_far_as_it_has_one() -> None:
    cluster = mixed()
    host = int(cluster.host_endpoint(ranks(4))[0])

    assert names(cluster, 6, host)[1:-1] == ["node0/nic6/tx", "leaf0/up", "leaf2/down", "node4/nic1/rx"]
    assert names(cluster, host, 16)[-2:] == ["node2/nic0/rx", "node2/gpu0/pcie/down"]


def test_ports_of_a_switch_are_those_of_the_kind_and_a_kind_without_one_is_named() -> None:
    cluster = mixed()

    assert [cluster.link_name(int(link)) for link in cluster.switch_ports(ranks(9))[0]] == [
        "node1/gpu1/nvlink/up",
        "node1/gpu1/nvlink/down",
    ]
    with pytest.raises(DomainError, match="old box joins its accelerators without a switch \\(cube_mesh\\)"):
        cluster.switch_ports(ranks(9, 17))


def test_each_link_belongs_to_a_kind_or_to_the_fabric() -> None:
    cluster = mixed(servers=1)
    kinds = cluster.kind_of_link()
    found = {cluster.link_name(link): int(kind) for link, kind in enumerate(kinds)}

    assert (found["node1/gpu0/nvlink/up"], found["node2/nic0/rx"], found["node5/pcie0/up"]) == (0, 1, 2)
    assert (found["node3/memory"], found["node4/memory"]) == (1, 2)
    assert found["leaf0/up"] == found["server0/nic0/tx"] == found["server0/memory"] == -1


def test_a_memory_is_that_of_its_host() -> None:
    small = make_node()
    small = replace(small, host=replace(small.host, memory_bandwidth_bytes_per_s=1e11))
    cluster = build_mixed_cluster(((make_node(), 1), (small, 1)), SPINES, servers=make_servers(1))

    widths = cluster.bandwidth_bytes_per_s[cluster.memory_link(ranks(0, 1, 2))]

    assert widths.tolist() == [4e11, 1e11, 3e11]


def test_a_broken_link_breaks_the_node_of_its_kind_and_no_other() -> None:
    cluster = mixed(changes=(LinkChange(between=("node2/gpu0", "node2/gpu1"), state="down"),))

    assert len(names(cluster, 16, 17)) == 2
    assert len(names(cluster, 24, 25)) == 1
    assert names(cluster, 0, 1) == ["node0/gpu0/nvlink/up", "node0/gpu1/nvlink/down"]


def test_ranks_that_are_cut_off_are_named_by_the_count_of_the_cluster() -> None:
    with pytest.raises(DomainError, match=r"ranks 36-39 cannot reach ranks 0-35: no way is left"):
        mixed(changes=(LinkChange(between=("node5/nic*", "leaf*"), state="down"),))


def test_an_unknown_name_gets_a_hint_from_its_own_kind() -> None:
    with pytest.raises(DomainError, match="there is no 'node4/gpu7'"):
        mixed(changes=(LinkChange(between=("node4/gpu7", "node4/pcie0"), fraction=0.5),))


def test_the_halves_of_a_bisection_are_domains_of_any_kind() -> None:
    halves = build_mixed_cluster(((make_node(), 2), (slower(make_node()), 2)), SPINES)

    assert bisection_bytes_per_s(halves) == pytest.approx(2 * 8 * NIC_BYTES_PER_S / 4, rel=1e-12)


def test_racks_and_single_nodes_stand_in_one_cluster() -> None:
    rack = make_node(n_accelerators=4, n_nics=4, nodes_per_domain=2)
    cluster = build_mixed_cluster(((rack, 3), (make_node(n_accelerators=4, n_nics=4), 2)), make_fabric())

    assert cluster.domain_of(ranks(0, 4, 8, 12, 16)).tolist() == [0, 0, 1, 2, 3]
    assert cluster.domain_of_host(ranks(0, 1, 2, 3, 4)).tolist() == [0, 0, 1, 2, 3]
    assert names(cluster, 0, 5) == ["node0/gpu0/nvlink/up", "node1/gpu1/nvlink/down"]
    assert names(cluster, 12, 16)[1] == "node3/nic0/tx"


def test_different_numbers_of_rails_are_refused_where_each_rail_has_its_leaf() -> None:
    kinds = ((make_node(), 1), (replace(make_node(n_nics=4), name="four"), 1))

    with pytest.raises(DomainError, match="a node of kind box is on 8 rails, and one of kind four on 4") as caught:
        build_mixed_cluster(kinds, make_fabric())

    assert caught.value.hint == "give both 8 adapters, or use topology leaf_spine"
    assert build_mixed_cluster(kinds, SPINES).n_ranks == 16


def test_a_kind_without_adapters_is_refused() -> None:
    with pytest.raises(DomainError, match="lonely has no network adapters to reach the other nodes") as caught:
        build_mixed_cluster(((make_node(), 1), (replace(make_node(n_nics=0), name="lonely"), 1)), SPINES)

    assert caught.value.path == ("cluster", "kinds", 1, "n_nics")


@pytest.mark.parametrize("method", ["kind_of", "ranks_on"])
def test_a_node_outside_is_refused(method: str) -> None:
    with pytest.raises(DomainError, match="node 6 is outside the cluster; its nodes are 0 to 5"):
        getattr(mixed(), method)(ranks(0, 6))
