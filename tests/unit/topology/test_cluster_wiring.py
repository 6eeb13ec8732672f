from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_node
from clustersim.hardware.models import Fabric, FabricTopology, Node
from clustersim.topology.cluster_wiring import MOST_RANKS, N_KEPT, build_cluster, cluster_of
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import (
    MEMORY_BYTES_PER_S,
    NIC_BYTES_PER_S,
    SERVER_MEMORY_BYTES_PER_S,
    SERVER_NIC_BYTES_PER_S,
    make_fabric,
    make_node,
    make_servers,
    ranks,
    route,
)


def bandwidth_of(cluster: Cluster, name: str) -> float:
    return next(link.bandwidth_bytes_per_s for link in cluster.links if link.name == name)


def tiers_of(cluster: Cluster) -> set[str]:
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
    assert tiers_of(build_cluster(make_node(), 1)) == {"nvlink", "pcie", "socket", "memory"}


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


def test_hashed_flows_get_uplinks_one_by_one_and_spread_ones_a_bundle() -> None:
    hashed, spread = (build_cluster(make_node(), 4, make_fabric("leaf_spine", routing=routing)) for routing in ("ecmp", "adaptive"))

    assert sum(link.tier == "leaf" for link in hashed.links) == 2 * 2 * 16
    assert sum(link.tier == "leaf" for link in spread.links) == 2 * 2
    assert bandwidth_of(hashed, "leaf0/spine0/up3") == NIC_BYTES_PER_S


def test_a_change_of_a_single_spine_lays_spines_one_by_one_and_one_of_all_does_not() -> None:
    fabric = make_fabric("leaf_spine", n_ports=16)
    single, whole = (
        build_cluster(make_node(), 8, fabric, changes=[LinkChange(between=("leaf0", name), fraction=0.5)]) for name in ("spine1", "spines")
    )

    assert bandwidth_of(single, "leaf0/spine1/up") == bandwidth_of(single, "leaf0/spine0/up") / 2
    assert bandwidth_of(whole, "leaf0/up") == bandwidth_of(whole, "leaf1/up") / 2


def test_the_seed_of_the_run_and_that_of_the_fabric_both_decide_the_hash() -> None:
    pairs = ranks(*range(16)), ranks(*range(16, 32))

    def links(fabric_seed: int, seed: int) -> list[int]:
        fabric = make_fabric("leaf_spine", routing="ecmp", seed=fabric_seed)
        return build_cluster(make_node(), 4, fabric, seed=seed).routes(*pairs).link_ids.tolist()

    assert links(0, 0) == links(0, 0)
    assert len({tuple(links(*seeds)) for seeds in ((0, 0), (1, 0), (0, 1), (1, 1))}) == 4


def test_servers_stand_where_further_nodes_would() -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=2)
    cluster = build_cluster(make_node(), 3, fabric, servers=make_servers(2, n_nics=2))
    ends = {cluster.link_name(link): cluster.ends(link) for link in range(len(cluster.links))}

    assert ends["server0/nic1/tx"] == ("server0/socket1", "leaf1")
    assert ends["server1/nic0/rx"] == ("leaf2", "server1/socket0")
    assert bandwidth_of(cluster, "server0/nic0/tx") == SERVER_NIC_BYTES_PER_S
    assert cluster.n_leaves == 3


def test_servers_need_the_fabric_also_beside_a_single_domain() -> None:
    assert "nic" in tiers_of(build_cluster(make_node(), 1, servers=make_servers(1)))


def test_the_nics_of_a_server_are_spread_over_the_rails() -> None:
    cluster = build_cluster(make_node(), 2, make_fabric(nodes_per_leaf=4), servers=make_servers(1, n_nics=4))
    ends = {cluster.link_name(link): cluster.ends(link) for link in range(len(cluster.links))}

    assert [ends[f"server0/nic{nic}/tx"][1] for nic in range(4)] == ["leaf0", "leaf2", "leaf4", "leaf6"]


def test_every_host_has_a_memory_at_the_end_of_the_links() -> None:
    cluster = build_cluster(make_node(), 3, servers=make_servers(2))

    memories = [link for link in cluster.links if link.tier == "memory"]

    assert [link.name for link in memories] == ["node0/memory", "node1/memory", "node2/memory", "server0/memory", "server1/memory"]
    assert [link.name for link in list(cluster.links)[-5:]] == [link.name for link in memories]
    assert {link.bandwidth_bytes_per_s for link in memories[:3]} == {MEMORY_BYTES_PER_S}
    assert {link.bandwidth_bytes_per_s for link in memories[3:]} == {SERVER_MEMORY_BYTES_PER_S}


def test_without_links_that_are_down_a_domain_of_many_nodes_needs_no_fabric_and_with_one_it_has_a_way_around() -> None:
    node = make_node(n_accelerators=2, n_nics=2, nodes_per_domain=4)
    lost = [LinkChange(between=(f"node0/gpu{index}", "nvswitch"), state="down") for index in range(2)]

    cluster = build_cluster(node, 4, make_fabric("single_switch"), changes=lost)

    assert "nic" not in tiers_of(build_cluster(node, 4, make_fabric("single_switch")))
    assert [link.name for link in route(cluster, 0, 6)][1:3] == ["node0/nic0/tx", "node3/nic0/rx"]


@pytest.mark.parametrize(
    ("node", "n_nodes", "fabric", "path"),
    [
        (make_node("full_mesh", nodes_per_domain=2), 2, make_fabric(), "kinds.0.scale_up.nodes_per_domain"),
        (make_node("full_mesh", n_accelerators=9), 2, make_fabric(), "kinds.0.n_accelerators"),
        (make_node(n_nics=0), 2, make_fabric(), "kinds.0.n_nics"),
        (make_node(), 2, make_fabric("torus"), "fabric.dimensions"),
        (make_node(), 2, make_fabric("torus", dimensions=(3,)), "fabric.dimensions"),
        (make_node(), 2, make_fabric("torus", dimensions=(2, 1, 1, 1)), "fabric.dimensions"),
        (make_node(), 2, make_fabric("torus", dimensions=(-2, -1)), "fabric.dimensions"),
        (make_node(), 2, make_fabric("dragonfly", leaves_per_group=0), "fabric.leaves_per_group"),
        (make_node(), 2, make_fabric("dragonfly", global_links=0), "fabric.global_links"),
        (make_node(), 9, make_fabric("dragonfly", nodes_per_leaf=1, global_links=1), "fabric.global_links"),
        (make_node(), 2, make_fabric("fat_tree"), "fabric.leaves_per_pod"),
    ],
)
def test_what_cannot_be_wired_is_refused_by_its_attribute(node: Node, n_nodes: int, fabric: Fabric, path: str) -> None:
    with pytest.raises(DomainError) as caught:
        build_cluster(node, n_nodes, fabric)

    assert ".".join(map(str, caught.value.path)) == f"cluster.{path}"
    assert caught.value.hint


def test_servers_are_out_of_reach_of_nodes_without_adapters() -> None:
    with pytest.raises(DomainError, match="box has no network adapters to reach the servers") as caught:
        build_cluster(make_node(n_nics=0), 1, servers=make_servers(1))

    assert caught.value.path == ("cluster", "kinds", 0, "n_nics")


def test_131072_ranks_build_in_a_second_with_uplinks_one_by_one_too() -> None:
    for fabric in (make_fabric(nodes_per_leaf=32), make_fabric(nodes_per_leaf=32, routing="ecmp")):
        begin_s = time.process_time()
        cluster = build_cluster(make_node(), 16384, fabric)
        everybody = np.arange(cluster.n_ranks, dtype=np.int64)
        routes = cluster.routes(everybody, np.roll(everybody, -8 * 400 - 3))

        assert len(routes.starts) == 131073
        assert time.process_time() - begin_s < 1.5


def test_an_equal_cluster_is_the_same() -> None:
    node = load_node("dgx-h100")

    assert cluster_of(((node, 2),)) is cluster_of(((replace(node), 2),))


def test_a_cluster_of_other_nodes_or_links_is_another() -> None:
    node = load_node("dgx-h100")
    slower = LinkChange(between=("node0/nic0", "leaf0"), fraction=0.5)
    faster = replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=2 * node.nic.bandwidth_bytes_per_s))
    as_built = cluster_of(((node, 2),))

    assert cluster_of(((node, 3),)) is not as_built
    assert cluster_of(((faster, 2),)) is not as_built
    assert cluster_of(((node, 2),), changes=(slower,)) is not as_built


def test_only_the_last_few_are_kept() -> None:
    node = load_node("dgx-h100")
    first = cluster_of(((node, 2),))

    for count in range(3, 3 + N_KEPT):
        cluster_of(((node, count),))

    assert cluster_of(((node, 2),)) is not first


def test_a_large_cluster_is_not_kept() -> None:
    node = load_node("dgx-h100")
    count = MOST_RANKS // node.n_accelerators + 1

    assert cluster_of(((node, count),)) is not cluster_of(((node, count),))
