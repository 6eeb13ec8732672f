from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clustersim.hardware.models import Fabric, Node
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_fabric, make_node, make_servers

NODE = make_node(n_accelerators=4, n_nics=4)


def wired(node: Node = NODE, n_nodes: int = 6, fabric: Fabric | None = None, changes: Sequence[LinkChange] = ()) -> Cluster:
    return build_cluster(node, n_nodes, fabric or make_fabric(nodes_per_leaf=2), changes=changes)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    "cluster",
    [
        wired(),
        wired(fabric=make_fabric("leaf_spine", nodes_per_leaf=2)),
        wired(fabric=make_fabric(nodes_per_leaf=1, leaves_per_pod=8)),
        wired(n_nodes=1),
        wired(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=3)),
        wired(make_node("pcie", n_accelerators=4, n_nics=4, accelerators_per_pcie_switch=1, n_sockets=1)),
    ],
    ids=["rails", "one leaf for all adapters", "pods", "one node", "a domain of nodes", "over PCIe"],
)
def test_the_route_of_rotated_ranks_is_the_rotated_route(cluster: Cluster, step: int) -> None:
    rotation = cluster.rotation(step)
    assert rotation is not None
    sources, destinations = (each.reshape(-1) for each in np.meshgrid(np.arange(cluster.n_ranks), np.arange(cluster.n_ranks)))
    before = cluster.routes(sources, destinations)

    after = cluster.routes(rotation.rotated_rank[sources], rotation.rotated_rank[destinations])

    np.testing.assert_array_equal(before.starts, after.starts)
    np.testing.assert_array_equal(before.latency_s, after.latency_s)
    np.testing.assert_array_equal(rotation.lowest_link[before.link_ids], rotation.lowest_link[after.link_ids])
    image = np.full(len(cluster.bandwidth_bytes_per_s), -1)
    image[before.link_ids] = after.link_ids
    assert (image[before.link_ids] == after.link_ids).all()
    for values in (cluster.bandwidth_bytes_per_s, cluster.latency_s, cluster.tier_index):
        assert (values[before.link_ids] == values[after.link_ids]).all()


def test_ranks_take_the_places_of_as_many_as_there_are_turns() -> None:
    rotation = wired(n_nodes=2).rotation(2)

    assert rotation is not None
    assert (rotation.n_rotations, rotation.per_node) == (2, 4)
    assert rotation.rotated_rank.tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
    assert rotation.lowest_rank.tolist() == [0, 1, 0, 1, 4, 5, 4, 5]


def test_a_link_turns_with_its_rank_and_one_of_all_rails_stays_where_it_is() -> None:
    cluster = wired(fabric=make_fabric(nodes_per_leaf=2, leaves_per_pod=8))
    names = [link.name for link in cluster.links]

    rotation = cluster.rotation(1)

    assert rotation is not None
    lowest = {name: names[int(rotation.lowest_link[number])] for number, name in enumerate(names)}
    alike = {name: int(rotation.n_alike[number]) for number, name in enumerate(names)}
    assert (lowest["node1/nic3/tx"], alike["node1/nic3/tx"]) == ("node1/nic0/tx", 4)
    assert (lowest["node2/gpu2/nvlink/up"], alike["node2/gpu2/nvlink/up"]) == ("node2/gpu0/nvlink/up", 4)
    assert (lowest["leaf6/up"], alike["leaf6/up"]) == ("leaf4/up", 4)
    assert (lowest["pod1/up"], alike["pod1/up"]) == ("pod1/up", 1)


def test_the_links_that_take_each_others_places_are_as_many_as_is_said() -> None:
    rotation = wired().rotation(1)

    assert rotation is not None
    lowest, counts = np.unique(rotation.lowest_link, return_counts=True)
    assert (rotation.n_alike[lowest] == counts).all()


@pytest.mark.parametrize("step", [3, 4])
def test_steps_that_do_not_come_back_or_change_nothing_are_no_turns(step: int) -> None:
    assert wired().rotation(step) is None


@pytest.mark.parametrize(
    "cluster",
    [
        wired(fabric=make_fabric(nodes_per_leaf=2, routing="ecmp")),
        wired(fabric=make_fabric(nodes_per_leaf=2, leaves_per_pod=3)),
        wired(fabric=make_fabric("dragonfly", nodes_per_leaf=2)),
        wired(make_node("cube_mesh", n_accelerators=8, n_nics=4)),
        wired(make_node(n_accelerators=4, n_nics=2)),
        wired(changes=[LinkChange(between=("node1/nic0", "*"), fraction=0.5)]),
        wired(changes=[LinkChange(between=("leaf1", "spine*"), fraction=0.5)]),
        wired(changes=[LinkChange(between=("node3/nic2", "*"), state="down")]),
        build_mixed_cluster(((NODE, 2), (replace(NODE, name="other"), 2)), make_fabric(nodes_per_leaf=2)),
        build_cluster(NODE, 4, make_fabric(nodes_per_leaf=2), servers=make_servers()),
    ],
    ids=[
        "hashed",
        "rails in two pods",
        "dragonfly",
        "mesh",
        "shared adapters",
        "slow adapter",
        "slow leaf",
        "down",
        "two kinds",
        "servers",
    ],
)
def test_what_a_turn_may_change_has_none(cluster: Cluster) -> None:
    assert cluster.rotation(1) is None


def test_what_ranks_go_over_between_nodes_and_inside_turns() -> None:
    cluster = wired()
    rotation = cluster.rotation(1)
    assert rotation is not None

    moving = {TIERS[int(tier)] for tier in cluster.tier_index[rotation.n_alike > 1]}

    assert {"nvlink", "pcie", "nic", "leaf"} <= moving
