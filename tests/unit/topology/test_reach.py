from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.node_wiring import NodeWiring, Paths, wire_node, wire_server
from clustersim.topology.reach import detoured
from tests.unit.topology.factories import make_fabric, make_node, make_servers

RAILS = make_fabric(nodes_per_leaf=2)
SMALL = make_node(n_accelerators=2, n_nics=2)


def down(low: str, high: str) -> LinkChange:
    return LinkChange(between=(low, high), state="down")


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
    error = cut(LinkChange(between=("node1/nic*", "leaf*"), state="down", direction="forward"))

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


def mended(wiring: NodeWiring, *names: str) -> Paths:
    return detoured(wiring, [wiring.number_of(name) for name in names])


def both(name: str) -> tuple[str, str]:
    return f"{name}/up", f"{name}/down"


def test_a_cube_mesh_takes_another_nvlink_way_before_pcie() -> None:
    paths = mended(wire_node(make_node("cube_mesh"), make_fabric()), "gpu0/nvlink/to3")

    # 0-1-3, 0-2-3 and 0-4-7-3 are left; the first two have one link on their narrowest edge, and the lower numbers win.
    assert paths.inside[0, 3] == ("gpu0/nvlink/to1", "gpu1/nvlink/to3")
    assert paths.inside[3, 0] == ("gpu3/nvlink/to0",)


def test_of_equally_long_ways_the_widest_wins() -> None:
    paths = mended(wire_node(make_node("cube_mesh"), make_fabric()), "gpu0/nvlink/to2")

    # Over 1 the narrowest edge is one link wide, over 3 it is two.
    assert paths.inside[0, 2] == ("gpu0/nvlink/to3", "gpu3/nvlink/to2")


def test_a_cube_mesh_takes_pcie_where_no_nvlink_is_left() -> None:
    paths = mended(wire_node(make_node("cube_mesh"), make_fabric()), *(f"gpu0/nvlink/to{peer}" for peer in range(1, 5)))

    assert paths.inside[0, 1] == ("gpu0/pcie/up", "gpu1/pcie/down")
    assert paths.inside[0, 5] == ("gpu0/pcie/up", "pcie0/up", "socket0/to1", "pcie2/down", "gpu5/pcie/down")
    assert paths.inside[5, 0] == ("gpu5/nvlink/to1", "gpu1/nvlink/to0")


def test_a_broken_port_of_a_switch_leaves_pcie() -> None:
    paths = mended(wire_node(make_node(), make_fabric()), *both("gpu3/nvlink"))

    assert paths.inside[3, 2] == ("gpu3/pcie/up", "gpu2/pcie/down")
    assert paths.inside[2, 4] == ("gpu2/nvlink/up", "gpu4/nvlink/down")


def test_a_broken_port_reaches_the_switch_by_that_of_a_neighbour() -> None:
    paths = mended(wire_node(make_node(nodes_per_domain=2), make_fabric()), *both("gpu3/nvlink"))

    assert paths.to_switch[3, 3] == ("gpu3/pcie/up", "gpu2/pcie/down", "gpu2/nvlink/up")
    assert paths.from_switch[3, 3] == ("gpu2/nvlink/down", "gpu2/pcie/up", "gpu3/pcie/down")


def test_an_accelerator_without_its_adapter_takes_the_nearest_over_pcie_and_not_over_its_neighbours_nvlink() -> None:
    paths = mended(wire_node(make_node(), make_fabric()), "nic3/tx", "nic3/rx")

    assert paths.adapter_of[:8] == (0, 1, 2, 2, 4, 5, 6, 7)
    assert paths.outward[3, 2] == ("gpu3/pcie/up", "nic2/tx")
    assert (3, 3) not in paths.outward
    assert (0, 3) not in paths.inward


def test_an_adapter_that_only_sends_is_left_for_one_that_does_both() -> None:
    assert mended(wire_node(make_node(), make_fabric()), "nic3/rx").adapter_of[3] == 2


def test_an_accelerator_without_pcie_goes_out_by_a_neighbour() -> None:
    paths = mended(wire_node(make_node(), make_fabric()), *both("gpu3/pcie"))

    assert paths.adapter_of[3] == 3
    assert paths.outward[3, 3] == ("gpu3/nvlink/up", "gpu2/nvlink/down", "gpu2/pcie/up", "nic3/tx")
    assert paths.inside[3, 8] == ("gpu3/nvlink/up", "gpu0/nvlink/down", "gpu0/pcie/up", "pcie0/up")


def test_a_broken_link_between_sockets_is_gone_around_by_a_third_or_not_at_all() -> None:
    three = mended(wire_node(make_node("pcie", n_sockets=3, n_accelerators=6), make_fabric()), "socket0/to1")
    two = mended(wire_node(make_node("pcie"), make_fabric()), "socket0/to1")

    assert three.inside[0, 2] == ("gpu0/pcie/up", "pcie0/up", "socket0/to2", "socket2/to1", "pcie1/down", "gpu2/pcie/down")
    assert (0, 7) not in two.inside
    assert (7, 0) in two.inside


def test_no_adapter_is_passed_on_the_way_to_another() -> None:
    paths = mended(wire_node(make_node("pcie"), make_fabric()), "gpu0/pcie/up")

    assert not [path for (a, _), path in paths.outward.items() if a == 0]
    assert (0, 1) not in paths.inside


def test_an_accelerator_that_can_reach_no_adapter_keeps_its_own() -> None:
    assert mended(wire_node(make_node("pcie"), make_fabric()), *both("gpu0/pcie")).adapter_of[0] == 0


def test_a_server_loses_the_adapter_whose_link_is_down() -> None:
    wiring = wire_server(make_servers(n_nics=3), make_fabric())

    paths = mended(wiring, "nic1/tx")

    assert sorted(adapter for _, adapter in paths.outward) == [0, 2]
    assert sorted(adapter for _, adapter in paths.inward) == [0, 1, 2]
