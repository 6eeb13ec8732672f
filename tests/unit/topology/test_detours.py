from __future__ import annotations

from clustersim.topology.detours import detoured
from clustersim.topology.node_wiring import NodeWiring, Paths, wire_node, wire_server
from tests.unit.topology.factories import make_fabric, make_node, make_servers


def mended(wiring: NodeWiring, *names: str) -> Paths:
    return detoured(wiring, [wiring.number_of(name) for name in names])


def both(name: str) -> tuple[str, str]:
    return f"{name}/up", f"{name}/down"


def test_without_broken_wires_everything_stays() -> None:
    wiring = wire_node(make_node(), make_fabric())

    assert mended(wiring) == wiring.paths


def test_ways_that_touch_no_broken_wire_stay() -> None:
    wiring = wire_node(make_node("cube_mesh"), make_fabric())

    paths = mended(wiring, "gpu0/nvlink/to3")

    changed = {pair for pair, path in paths.inside.items() if path != wiring.paths.inside[pair]}
    assert changed == {pair for pair, path in wiring.paths.inside.items() if "gpu0/nvlink/to3" in path}


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
