from __future__ import annotations

import numpy as np
import pytest

from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.node_wiring import adapter_bandwidth_bytes_per_s, adapter_of_accelerator, n_adapters, wire_node
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_BYTES_PER_S, NIC_S, SCALE_UP_S, make_fabric, make_node, route


@pytest.mark.parametrize(
    ("n_accelerators", "n_nics", "adapters"),
    [
        (8, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (8, 4, [0, 0, 1, 1, 2, 2, 3, 3]),
        (8, 1, [0, 0, 0, 0, 0, 0, 0, 0]),
        (8, 3, [0, 0, 0, 1, 1, 1, 2, 2]),
        (4, 16, [0, 1, 2, 3]),
    ],
)
def test_accelerators_share_adapters_evenly(n_accelerators: int, n_nics: int, adapters: list[int]) -> None:
    node = make_node(n_accelerators=n_accelerators, n_nics=n_nics)

    np.testing.assert_array_equal(adapter_of_accelerator(node), adapters)


@pytest.mark.parametrize(("n_nics", "n_bundles", "width"), [(4, 4, 1), (8, 8, 1), (32, 8, 4), (10, 8, 1)])
def test_the_spare_nics_of_an_accelerator_form_one_bundle(n_nics: int, n_bundles: int, width: int) -> None:
    node = make_node(n_nics=n_nics)

    assert n_adapters(node) == n_bundles
    assert adapter_bandwidth_bytes_per_s(node) == width * NIC_BYTES_PER_S


@pytest.mark.parametrize("rank", range(8))
def test_with_a_nic_each_nothing_leaves_the_pcie_switch(rank: int) -> None:
    cluster = build_cluster(make_node(), 2, make_fabric("single_switch"))

    names = [link.name for link in route(cluster, rank, 8 + rank)]

    assert names == [f"node0/gpu{rank}/pcie/up", f"node0/nic{rank}/tx", f"node1/nic{rank}/rx", f"node1/gpu{rank}/pcie/down"]


def test_a_dgx1_has_a_nic_below_each_pair_of_accelerators() -> None:
    cluster = build_cluster(make_node("cube_mesh", n_nics=4), 2, make_fabric("single_switch"))

    names = [link.name for link in route(cluster, 5, 14)]

    assert names == ["node0/gpu5/pcie/up", "node0/nic2/tx", "node1/nic3/rx", "node1/gpu6/pcie/down"]


def test_a_lone_nic_is_reached_over_the_socket() -> None:
    cluster = build_cluster(make_node(n_nics=1), 2, make_fabric("single_switch"))

    names = [link.name for link in route(cluster, 7, 8)]

    assert names == [
        "node0/gpu7/pcie/up",
        "node0/pcie3/up",
        "node0/socket1/to0",
        "node0/pcie0/down",
        "node0/nic0/tx",
        "node1/nic0/rx",
        "node1/gpu0/pcie/down",
    ]


@pytest.mark.parametrize("kind", ["nvswitch", "pcie", "bridge_pairs"])
def test_a_nic_latency_counts_once_on_each_side(kind: str) -> None:
    node = make_node("pcie" if kind == "pcie" else "nvswitch" if kind == "nvswitch" else "bridge_pairs")
    cluster = build_cluster(node, 2, make_fabric("single_switch"))

    latency_s = sum(link.latency_s for link in route(cluster, 0, 8))

    assert latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_a_nic_latency_below_that_of_pcie_does_not_turn_negative() -> None:
    node = make_node("pcie", nic_latency_s=SCALE_UP_S / 10)
    cluster = build_cluster(node, 2, make_fabric("single_switch"))

    latency_s = sum(link.latency_s for link in route(cluster, 0, 8))

    assert latency_s == pytest.approx(SCALE_UP_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_without_a_fabric_there_are_no_adapters() -> None:
    wiring = wire_node(make_node(), None)

    assert "nic" not in {wire.tier for wire in wiring.wires}
    assert wiring.paths.outward == wiring.paths.inward == {}
