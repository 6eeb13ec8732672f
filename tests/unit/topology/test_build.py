from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, FabricTopology, Node
from clustersim.topology.build import build_cluster
from clustersim.topology.wired import WiredCluster
from tests.unit.topology.factories import NIC_BYTES_PER_S, make_fabric, make_node


def bandwidth_of(cluster: WiredCluster, name: str) -> float:
    return next(link.bandwidth_bytes_per_s for link in cluster.links if link.name == name)


def tiers_of(cluster: WiredCluster) -> set[str]:
    return {link.tier for link in cluster.links}


def test_without_a_fabric_the_reference_fabric_of_the_node_is_laid() -> None:
    fabric = make_fabric("single_switch")

    cluster = build_cluster(make_node(fabric=fabric), 4)

    assert cluster.fabric is fabric


def test_a_fabric_given_comes_before_that_of_the_node() -> None:
    fabric = make_fabric("leaf_spine")

    assert build_cluster(make_node(), 4, fabric).fabric is fabric


@pytest.mark.parametrize(
    ("topology", "nodes_per_leaf", "n_adapters_below"),
    [("leaf_spine", 4, 32), ("rail_optimized", 4, 4), ("fat_tree", 2, 16)],
)
def test_a_leaf_climbs_with_what_hangs_below_it(topology: FabricTopology, nodes_per_leaf: int, n_adapters_below: int) -> None:
    cluster = build_cluster(make_node(), 16, make_fabric(topology, nodes_per_leaf=nodes_per_leaf, leaves_per_pod=8))

    assert bandwidth_of(cluster, "leaf0/up") == bandwidth_of(cluster, "leaf0/down") == n_adapters_below * NIC_BYTES_PER_S


def test_oversubscription_divides_what_climbs() -> None:
    fabric = make_fabric("fat_tree", leaves_per_pod=2, oversubscription=2.0, core_oversubscription=7.0)

    cluster = build_cluster(make_node(), 8, fabric)

    assert bandwidth_of(cluster, "leaf1/up") == 16 * NIC_BYTES_PER_S / 2
    assert bandwidth_of(cluster, "pod1/down") == pytest.approx(2 * 16 * NIC_BYTES_PER_S / 2 / 7, rel=1e-12)


def test_a_leaf_has_uplinks_for_its_full_complement() -> None:
    half_full = build_cluster(make_node(), 5, make_fabric("leaf_spine", nodes_per_leaf=4))

    assert bandwidth_of(half_full, "leaf1/up") == bandwidth_of(half_full, "leaf0/up") == 32 * NIC_BYTES_PER_S


def test_a_pod_has_uplinks_for_its_full_complement() -> None:
    half_full = build_cluster(make_node(), 6, make_fabric("leaf_spine", leaves_per_pod=2))

    assert bandwidth_of(half_full, "pod1/up") == 2 * 16 * NIC_BYTES_PER_S


def test_a_bundle_of_nics_counts_in_full() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=16), 4, make_fabric("leaf_spine"))

    assert bandwidth_of(cluster, "node0/nic0/tx") == 4 * NIC_BYTES_PER_S
    assert bandwidth_of(cluster, "leaf0/up") == 2 * 16 * NIC_BYTES_PER_S


def test_one_node_has_no_adapters() -> None:
    assert tiers_of(build_cluster(make_node(), 1)) == {"nvlink", "pcie", "socket"}


def test_one_domain_of_many_nodes_has_no_adapters() -> None:
    assert "nic" not in tiers_of(build_cluster(make_node(nodes_per_domain=18), 18))
    assert "nic" in tiers_of(build_cluster(make_node(nodes_per_domain=18), 19))


def test_one_leaf_needs_no_spines_and_one_pod_no_core() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=4, leaves_per_pod=2)

    assert not {"leaf", "spine"} & tiers_of(build_cluster(make_node(), 4, fabric))
    assert {"leaf", "spine"} & tiers_of(build_cluster(make_node(), 8, fabric)) == {"leaf"}
    assert {"leaf", "spine"} & tiers_of(build_cluster(make_node(), 9, fabric)) == {"leaf", "spine"}


def test_a_single_switch_has_nothing_above_it() -> None:
    assert not {"leaf", "spine"} & tiers_of(build_cluster(make_node(), 100, make_fabric("single_switch")))


def test_the_arrays_cannot_be_written() -> None:
    cluster = build_cluster(make_node(), 4)

    with pytest.raises(ValueError, match="read-only"):
        cluster.bandwidth_bytes_per_s[0] = 1.0


def test_ecmp_is_refused_for_now() -> None:
    with pytest.raises(ScenarioError, match="use adaptive") as caught:
        build_cluster(make_node(), 4, make_fabric(routing="ecmp"))

    assert caught.value.field == "cluster.fabric.routing"


@pytest.mark.parametrize(
    ("node", "n_nodes", "fabric", "field"),
    [
        (make_node(), 0, make_fabric(), "cluster.nodes"),
        (make_node(n_accelerators=0), 1, make_fabric(), "cluster.accelerators_per_node"),
        (make_node(accelerators_per_pcie_switch=0), 1, make_fabric(), "cluster.node.accelerators_per_pcie_switch"),
        (make_node(n_sockets=0), 1, make_fabric(), "cluster.node.host.n_sockets"),
        (make_node(nodes_per_domain=0), 1, make_fabric(), "cluster.node.scale_up.nodes_per_domain"),
        (make_node("full_mesh", nodes_per_domain=2), 2, make_fabric(), "cluster.node.scale_up.nodes_per_domain"),
        (make_node(n_nics=0), 2, make_fabric(), "cluster.nics"),
        (make_node(), 2, make_fabric(nodes_per_leaf=0), "cluster.fabric.nodes_per_leaf"),
        (make_node(), 2, make_fabric(leaves_per_pod=-1), "cluster.fabric.leaves_per_pod"),
        (make_node(), 2, make_fabric("fat_tree"), "cluster.fabric.leaves_per_pod"),
        (make_node(), 2, make_fabric(oversubscription=0.0), "cluster.fabric.oversubscription"),
        (make_node(), 2, make_fabric(core_oversubscription=float("inf")), "cluster.fabric.core_oversubscription"),
        (make_node(), 2, make_fabric(oversubscription=float("nan")), "cluster.fabric.oversubscription"),
    ],
)
def test_what_cannot_be_wired_is_refused_by_its_field(node: Node, n_nodes: int, fabric: Fabric, field: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build_cluster(node, n_nodes, fabric)

    assert caught.value.field == field
    assert caught.value.hint


def test_a_link_without_bandwidth_is_named() -> None:
    node = make_node()
    node = dataclasses.replace(node, host=dataclasses.replace(node.host, socket_link_bandwidth_bytes_per_s=0.0))

    with pytest.raises(ScenarioError, match="link node0/socket0/to1 has no bandwidth"):
        build_cluster(node, 1)


def test_a_cluster_of_24576_builds_within_a_second_and_routes_as_many_pairs_in_half() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=2, leaves_per_pod=192, core_oversubscription=7.0)
    begin_s = time.perf_counter()
    cluster = build_cluster(make_node(), 3072, fabric)
    built_s = time.perf_counter()
    everybody = np.arange(24576, dtype=np.int64)
    routes = cluster.routes(everybody, np.roll(everybody, -8 * 400 - 3))
    routed_s = time.perf_counter()

    assert cluster.n_ranks == 24576
    assert len(routes.starts) == 24577
    assert built_s - begin_s < 1.0
    assert routed_s - built_s < 0.5
