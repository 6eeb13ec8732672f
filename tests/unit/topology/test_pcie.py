from __future__ import annotations

import pytest

from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wires import n_pcie_switches, pcie_wires, socket_of_switch
from tests.unit.topology.factories import PCIE_BYTES_PER_S, SCALE_UP_S, SOCKET_BYTES_PER_S, make_node, route


def test_below_one_switch_nothing_climbs() -> None:
    cluster = build_cluster(make_node("pcie"), 1)

    assert [link.name for link in route(cluster, 2, 3)] == ["node0/gpu2/pcie/up", "node0/gpu3/pcie/down"]


def test_below_one_socket_traffic_turns_at_the_socket() -> None:
    cluster = build_cluster(make_node("pcie"), 1)

    names = [link.name for link in route(cluster, 0, 3)]

    assert names == ["node0/gpu0/pcie/up", "node0/pcie0/up", "node0/pcie1/down", "node0/gpu3/pcie/down"]


def test_between_sockets_traffic_takes_their_link() -> None:
    cluster = build_cluster(make_node("pcie"), 1)

    links = route(cluster, 7, 0)

    assert [link.name for link in links] == [
        "node0/gpu7/pcie/up",
        "node0/pcie3/up",
        "node0/socket1/to0",
        "node0/pcie0/down",
        "node0/gpu0/pcie/down",
    ]
    assert [link.tier for link in links] == ["pcie", "pcie", "socket", "pcie", "pcie"]
    assert links[2].bandwidth_bytes_per_s == SOCKET_BYTES_PER_S
    assert {link.bandwidth_bytes_per_s for link in links if link.tier == "pcie"} == {PCIE_BYTES_PER_S}


@pytest.mark.parametrize("destination", [1, 3, 7])
def test_the_domain_latency_lies_on_the_accelerators_own_wires(destination: int) -> None:
    cluster = build_cluster(make_node("pcie"), 1)

    assert sum(link.latency_s for link in route(cluster, 0, destination)) == SCALE_UP_S


def test_pcie_has_no_latency_of_its_own_where_nvlink_joins_the_domain() -> None:
    cluster = build_cluster(make_node("nvswitch"), 1)

    assert {link.latency_s for link in cluster.links if link.tier == "pcie"} == {0.0}


@pytest.mark.parametrize(
    ("n_accelerators", "below_switch", "n_sockets", "sockets"),
    [
        (8, 2, 2, [0, 0, 1, 1]),
        (8, 4, 2, [0, 1]),
        (8, 8, 2, [0]),
        (4, 1, 1, [0, 0, 0, 0]),
        (7, 2, 2, [0, 0, 1, 1]),
        (16, 4, 4, [0, 1, 2, 3]),
    ],
)
def test_switches_are_spread_over_sockets(n_accelerators: int, below_switch: int, n_sockets: int, sockets: list[int]) -> None:
    node = make_node("pcie", n_accelerators=n_accelerators, accelerators_per_pcie_switch=below_switch, n_sockets=n_sockets)

    assert [socket_of_switch(node, switch) for switch in range(n_pcie_switches(node))] == sockets


def test_every_ordered_pair_of_sockets_has_a_link() -> None:
    wires = pcie_wires(make_node("pcie", n_sockets=3), 0.0)

    assert [wire.name for wire in wires if wire.tier == "socket"] == [f"socket{a}/to{b}" for a in range(3) for b in range(3) if a != b]
