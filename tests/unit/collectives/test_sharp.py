from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.pattern import Pattern, grouping
from clustersim.collectives.sharp import lay_sharp
from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, FabricTopology
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SPINE_S, make_fabric, make_node


def everybody_on(cluster: Cluster) -> Pattern:
    return lay_sharp(cluster, grouping(cluster, np.arange(cluster.n_ranks, dtype=np.int64)[None]))


def on(fabric: Fabric, n_nodes: int, per_node: int = 2) -> dict[str, float]:
    cluster = nodes_of(per_node, n_nodes, fabric=fabric)
    return load_by_name(cluster, everybody_on(cluster))


def above_adapters(load: dict[str, float]) -> dict[str, float]:
    return {name: share for name, share in load.items() if not name.startswith("node")}


def test_every_adapter_carries_its_share_once_each_way() -> None:
    load = on(make_fabric("single_switch"), 5)

    assert {share for name, share in load.items() if "nic" in name} == {0.5}
    assert above_adapters(load) == {}


@pytest.mark.parametrize(("topology", "n_leaves", "share"), [("leaf_spine", 3, 1.0), ("rail_optimized", 6, 0.5)])
def test_a_leaf_sends_one_stream_for_each_rail_however_many_nodes_are_below(topology: FabricTopology, n_leaves: int, share: float) -> None:
    load = on(make_fabric(topology, nodes_per_leaf=4), 12)

    # Two rails of half the tensor hang at each of three leaves, or one at each of six.
    assert above_adapters(load) == {f"leaf{leaf}/{way}": share for leaf in range(n_leaves) for way in ("up", "down")}


def test_a_pod_sends_one_stream_to_the_core() -> None:
    load = on(make_fabric("fat_tree", nodes_per_leaf=2, leaves_per_pod=2), 12)

    assert above_adapters(load) == {
        **{f"leaf{leaf}/{way}": 1.0 for leaf in range(6) for way in ("up", "down")},
        **{f"pod{pod}/{way}": 1.0 for pod in range(3) for way in ("up", "down")},
    }


def test_the_way_is_up_to_the_spines_and_down_again() -> None:
    cluster = nodes_of(2, 4, fabric=make_fabric("leaf_spine", nodes_per_leaf=2))

    ((collected,),) = everybody_on(cluster).phases

    assert (collected.intra_steps, collected.inter_steps) == (2, 1)
    assert collected.inter_latency_s == pytest.approx(2 * NIC_S + 4 * CABLE_S + 2 * LEAF_S + SPINE_S, rel=1e-12)


def test_the_way_below_one_leaf_is_up_to_it_and_down() -> None:
    ((collected,),) = everybody_on(nodes_of(1, 2)).phases

    assert (collected.intra_steps, collected.inter_steps) == (0, 1)
    assert collected.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_where_the_switch_of_a_domain_cannot_add_shares_go_along_chains() -> None:
    fabric = replace(make_fabric("single_switch"), in_network_reduction=True)
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4), 2, fabric)

    pattern = everybody_on(cluster)

    # Reduced there and gathered back: 3/4 of the tensor twice.
    assert {share for name, share in load_by_name(cluster, pattern).items() if "nvlink" in name} == {1.5}
    assert pattern.phases[0][0].intra_steps == 6


def test_groups_of_an_orbit_add_up() -> None:
    cluster = nodes_of(2, 4, fabric=make_fabric("leaf_spine", nodes_per_leaf=2))

    pattern = lay_sharp(cluster, grouping(cluster, np.array([[0, 2, 4, 6], [1, 3, 5, 7]], dtype=np.int64)))

    assert above_adapters(load_by_name(cluster, pattern)) == {f"leaf{leaf}/{way}": 2.0 for leaf in range(2) for way in ("up", "down")}


def test_a_fabric_that_cannot_add_is_refused_by_name() -> None:
    cluster = build_cluster(make_node(), 2)

    with pytest.raises(DomainError, match=r"sharp needs switches that add: the fabric of box has none") as caught:
        everybody_on(cluster)

    assert caught.value.path == ("cluster", "fabric", "in_network_reduction")


def test_a_group_inside_one_domain_crosses_no_fabric() -> None:
    cluster = nodes_of(4, 2)

    with pytest.raises(DomainError, match=r"the group lies in one.*use nvls or ring"):
        lay_sharp(cluster, grouping(cluster, np.array([[0, 1]], dtype=np.int64)))
