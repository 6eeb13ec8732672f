from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology.changes import LinkChange
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.topology.factories import make_fabric, make_node, make_servers

RAILS = make_fabric(nodes_per_leaf=2)
SMALL = make_node(n_accelerators=2, n_nics=2)


def down(low: str, high: str) -> LinkChange:
    return LinkChange(between=(low, high), down=True)


def cut(
    *changes: LinkChange, node: Node = SMALL, n_nodes: int = 8, fabric: Fabric = RAILS, servers: ServerHosts | None = None
) -> DomainError:
    with pytest.raises(DomainError) as caught:
        build_cluster(node, n_nodes, fabric, changes=changes, servers=servers)
    return caught.value


def test_a_node_without_adapters_is_named_against_all_others() -> None:
    error = cut(down("node1/nic*", "leaf*"))

    assert error.message == "ranks 2-3 cannot reach ranks 0-1, 4-15: no way is left with the links down between node1/nic* and leaf*"
    assert (error.path, error.hint) == (("cluster", "changes", 0), "leave one of them up")


def test_a_lone_rank_is_named_in_the_singular() -> None:
    error = cut(down("node0/gpu1", "node0/pcie0"), down("node0/gpu1", "nvswitch"))

    assert error.message.startswith("rank 1 cannot reach ranks 0, 2-15:")
    assert error.path == ("cluster", "changes", 1)


def test_of_two_halves_the_second_is_the_one_that_is_cut_off() -> None:
    assert cut(down("node*/nic*", "leaf*"), n_nodes=2).message.startswith("ranks 2-3 cannot reach ranks 0-1:")


def test_leaves_without_spines_reach_what_hangs_at_them_and_nothing_else() -> None:
    error = cut(*(down(f"leaf{leaf}", "spines") for leaf in range(2)))

    assert error.message.startswith("ranks 0-3 cannot reach ranks 4-15:")


def test_one_rail_without_spines_is_reached_by_the_other() -> None:
    cluster = build_cluster(SMALL, 8, RAILS, changes=[down("leaf0", "spines")])

    assert cluster.n_ranks == 16


def test_a_whole_fabric_without_spines_falls_apart_into_its_leaves() -> None:
    assert cut(down("leaf*", "spines")).message.startswith("ranks 12-15 cannot reach ranks 0-11:")


def test_leaves_that_share_no_spine_are_cut_from_each_other_only() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=4, n_ports=8)
    changes = [down("leaf0", "spine[0,1]"), down("leaf1", "spine[2,3]")]

    error = cut(*changes, node=make_node(n_accelerators=4, n_nics=2), n_nodes=12, fabric=fabric)

    assert error.message.startswith("ranks 16-31 cannot reach ranks 0-15:")


def test_what_is_down_one_way_is_enough() -> None:
    error = cut(LinkChange(between=("node1/nic*", "leaf*"), down=True, forward_only=True))

    assert error.message.startswith("ranks 2-3 cannot reach ranks 0-1, 4-15:")


def test_a_server_that_is_cut_off_is_named() -> None:
    error = cut(down("server1/nic*", "leaf*"), servers=make_servers(2, n_nics=2))

    assert error.message.startswith("server 1 cannot reach ranks 0-15 and server 0:")


def test_many_changes_are_listed_in_short() -> None:
    error = cut(*(down(f"node{node}/nic*", "leaf*") for node in range(5)))

    assert error.message.endswith("between node0/nic* and leaf*; node1/nic* and leaf*; node2/nic* and leaf*; and 2 more")


def test_many_ranks_are_listed_in_short() -> None:
    error = cut(*(down(f"node{node}/nic*", "leaf*") for node in range(0, 20, 2)), n_nodes=20)

    assert error.message.startswith("ranks 0-1, 4-5, 8-9, 12-13, 16-17, 20-21, ... cannot reach ")


def test_in_a_domain_of_many_nodes_the_fabric_is_a_way_around_and_without_adapters_there_is_none() -> None:
    node, alone = (make_node(n_accelerators=2, n_nics=nics, nodes_per_domain=4) for nics in (2, 0))
    lost = [down("node1/gpu*", "nvswitch")]

    assert build_cluster(node, 6, RAILS, changes=lost).n_ranks == 12
    assert cut(*lost, node=alone, n_nodes=4).message.startswith("ranks 2-3 cannot reach ranks 0-1, 4-7:")
