from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.direct import lay_transfers
from clustersim.collectives.hierarchical import lay_hierarchical
from clustersim.collectives.nvls import lay_nvls
from clustersim.collectives.pattern import Grouping, Pattern, grouping
from clustersim.collectives.ring import lay_ring
from clustersim.collectives.rotated import NotAlikeError, Rotated
from clustersim.collectives.tree import lay_tree
from clustersim.topology.cluster import IntArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_fabric, make_node, ranks

Lay = Callable[[Cluster, Grouping], Pattern]

RING: Lay = partial(lay_ring, "all_gather")
N_NODES = 12
CLUSTER = build_cluster(make_node(n_accelerators=4, n_nics=4), N_NODES, make_fabric(nodes_per_leaf=2, leaves_per_pod=8))
ONE_LEAF = build_cluster(make_node(n_accelerators=4, n_nics=4), N_NODES, make_fabric("leaf_spine", nodes_per_leaf=2))
ALL = np.arange(4 * N_NODES, dtype=np.int64).reshape(N_NODES, 4)
INSIDE = ALL
"""Each node a group."""
RAILS = np.ascontiguousarray(ALL.T)
"""Each rail a group."""
BLOCKS = ALL.reshape(3, 16)
"""Four nodes a group each."""
EVERY_THIRD = np.ascontiguousarray(ALL.reshape(4, 3, 4).transpose(1, 0, 2)).reshape(3, 16)


def rotated(cluster: Cluster = CLUSTER, step: int = 1) -> Rotated:
    rotation = cluster.rotation(step)
    assert rotation is not None
    return Rotated(cluster=cluster, rotation=rotation)


def laid_by_rotation(lay: Lay, members: IntArray, cluster: Cluster = CLUSTER, step: int = 1) -> Pattern:
    turns = rotated(cluster, step)
    turns.groups(members)
    first = grouping(cluster, members[:1])
    return turns.pattern(members, first, lay(cluster, first))


def by_sender(crossings: Crossings, lowest_link: IntArray) -> list[tuple[int, float, list[int], list[float]]]:
    """Return all flows: sender, latency, links and amounts, in any order."""
    bounds = list(zip(crossings.starts[:-1].tolist(), crossings.starts[1:].tolist(), strict=True))
    links, amounts = lowest_link[crossings.link_ids].tolist(), crossings.amounts.tolist()
    found = [
        (rank, latency_s, links[first:last], amounts[first:last])
        for rank, latency_s, (first, last) in zip(crossings.ranks.tolist(), crossings.latency_s.tolist(), bounds, strict=True)
    ]
    return sorted(found)


def same(rotated: Pattern, whole: Pattern, cluster: Cluster, step: int) -> None:
    """Check that a pattern is that of all ranks, of which only lowest links and the flows of lowest ranks are kept."""
    rotation = cluster.rotation(step)
    assert rotation is not None
    assert rotated.uniform == whole.uniform
    flow_sets, whole_flow_sets = ([flow_set for phase in pattern.phases for flow_set in phase] for pattern in (rotated, whole))
    for flow_set, of_all in zip(flow_sets, whole_flow_sets, strict=True):
        kept = rotation.lowest_link[of_all.route_set.link_ids] == of_all.route_set.link_ids
        np.testing.assert_array_equal(flow_set.route_set.link_ids, of_all.route_set.link_ids[kept])
        np.testing.assert_array_equal(flow_set.route_set.flows, of_all.route_set.flows[kept])
        for name in ("share", "intra_steps", "inter_steps", "intra_latency_s", "inter_latency_s"):
            assert getattr(flow_set, name) == getattr(of_all, name)
        for flows, all_flows in zip(flow_set.crossings, of_all.crossings, strict=True):
            of_lowest = [
                flow for flow in by_sender(all_flows, rotation.lowest_link.astype(np.int64)) if rotation.lowest_rank[flow[0]] == flow[0]
            ]
            assert by_sender(flows, np.arange(len(rotation.lowest_link))) == of_lowest


@pytest.mark.parametrize("cluster", [CLUSTER, ONE_LEAF], ids=["rails", "one leaf for all adapters"])
@pytest.mark.parametrize("members", [INSIDE, RAILS, BLOCKS, EVERY_THIRD], ids=["nodes", "rails", "blocks", "every third node"])
@pytest.mark.parametrize("lay", [RING, lay_tree], ids=["ring", "tree"])
def test_what_the_lowest_ranks_let_flow_stands_for_what_all_do(lay: Lay, members: IntArray, cluster: Cluster) -> None:
    same(laid_by_rotation(lay, members, cluster), lay(cluster, grouping(cluster, members)), cluster, 1)


@pytest.mark.parametrize("lay", [RING, lay_tree], ids=["ring", "tree"])
def test_groups_of_half_a_node_turn_by_half_a_node(lay: Lay) -> None:
    halves = ALL.reshape(-1, 2)

    same(laid_by_rotation(lay, halves, step=2), lay(CLUSTER, grouping(CLUSTER, halves)), CLUSTER, 2)
    with pytest.raises(NotAlikeError):
        laid_by_rotation(lay, halves, step=1)


def test_parts_of_groups_are_laid_like_groups() -> None:
    turns, chosen = rotated(), np.array([0, 2], dtype=np.int64)
    whole, part = EVERY_THIRD, EVERY_THIRD[chosen]
    turns.groups(whole)
    first = grouping(CLUSTER, whole[:1])
    turns.pattern(whole, first, lay_tree(CLUSTER, first))

    turns.know_part(part, whole, chosen)

    same(turns.pattern(part, first, lay_tree(CLUSTER, first)), lay_tree(CLUSTER, grouping(CLUSTER, part)), CLUSTER, 1)


@pytest.mark.parametrize("cluster", [CLUSTER, ONE_LEAF], ids=["rails", "one leaf for all adapters"])
def test_sends_of_the_lowest_ranks_stand_for_all(cluster: Cluster) -> None:
    turns, senders = rotated(cluster), np.arange(32, dtype=np.int64)
    pairs = np.stack((senders, senders + 16), axis=1)
    turns.pairs(pairs)

    same(turns.transfers(pairs), lay_transfers(cluster, pairs[:, 0], pairs[:, 1]), cluster, 1)


def test_some_of_the_sends_are_laid_like_sends() -> None:
    turns, senders = rotated(), np.arange(32, dtype=np.int64)
    pairs = np.stack((senders, senders + 16), axis=1)
    turns.pairs(pairs)
    turns.transfers(pairs)
    part = pairs[8:24]

    turns.know_part(part, pairs, np.arange(2, 6, dtype=np.int64))

    same(turns.transfers(part), lay_transfers(CLUSTER, part[:, 0], part[:, 1]), CLUSTER, 1)


def test_the_first_of_those_that_take_each_others_places_stands_for_them() -> None:
    standing = rotated().groups(RAILS)

    assert standing.row_of.tolist() == [0, 0, 0, 0]
    assert standing.rows.members.tolist() == [list(range(0, 4 * N_NODES, 4))]
    assert rotated().groups(INSIDE).row_of.tolist() == list(range(N_NODES))


@pytest.mark.parametrize(
    "members",
    [
        RAILS[::-1],
        RAILS[:3],
        np.concatenate((RAILS, RAILS[:1])),
        np.array([[0, 5, 10, 15]]),
        np.array([[0, 1], [2, 3], [4, 6], [5, 7]]),
        np.array([[0, 4], [1, 5], [2, 6], [3, 11]]),
    ],
    ids=["the last rail first", "a rail is missing", "a rail twice", "no turn of it is there", "different places", "one goes elsewhere"],
)
def test_groups_that_do_not_take_each_others_places_are_refused(members: IntArray) -> None:
    with pytest.raises(NotAlikeError):
        rotated().groups(np.ascontiguousarray(members))


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 4), (1, 5), (2, 6)],
        [(0, 4), (1, 5), (2, 6), (3, 8)],
        [(0, 5), (1, 6), (2, 7), (3, 4)],
        [(0, 4), (1, 5), (2, 6), (3, 7), (0, 8)],
        [(3, 7), (2, 6), (1, 5), (0, 4)],
    ],
    ids=["one is missing", "one goes elsewhere", "to another place", "to two", "the last place first"],
)
def test_pairs_that_do_not_take_each_others_places_are_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(NotAlikeError):
        rotated().pairs(np.array(pairs))


def test_flows_from_one_rank_of_a_node_to_the_others_change_with_a_turn() -> None:
    with pytest.raises(NotAlikeError):
        laid_by_rotation(ALGORITHMS["broadcast"]["ring"].lay, INSIDE)


def test_flows_of_which_only_the_links_are_known_are_not_laid_by_rotation() -> None:
    node = make_node(n_accelerators=4, n_nics=4)
    adding = replace(node, scale_up=replace(node.scale_up, in_network_reduction=True))

    with pytest.raises(NotAlikeError):
        laid_by_rotation(partial(lay_nvls, "all_reduce"), INSIDE[:2], build_cluster(adding, 2, make_fabric()))


def test_sums_of_fractions_depend_on_their_order_and_are_not_laid_by_rotation() -> None:
    with pytest.raises(NotAlikeError):
        laid_by_rotation(lay_hierarchical, BLOCKS[:, :12])


def test_groups_that_lie_differently_are_not_laid_by_rotation() -> None:
    uneven = np.stack((ALL[[0, 1, 4, 5]].reshape(-1), ALL[[2, 3, 6, 7]].reshape(-1)))
    turns = rotated(build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=3), 12, make_fabric()))
    turns.groups(uneven)
    first = grouping(turns.cluster, uneven[:1])

    with pytest.raises(NotAlikeError):
        turns.pattern(uneven, first, RING(turns.cluster, first))


def test_groups_that_nobody_looked_at_are_not_laid_by_rotation() -> None:
    with pytest.raises(NotAlikeError):
        rotated().transfers(np.stack((ranks(0, 1, 2, 3), ranks(4, 5, 6, 7)), axis=1))


def test_groups_lie_alike_whatever_nodes_and_leaves_they_are_on() -> None:
    turns = rotated()

    assert turns.lie(ranks(0, 1)) == turns.lie(ranks(8, 9)) != turns.lie(ranks(9, 10))
    assert turns.lie(ranks(0, 4)) == turns.lie(ranks(8, 12)) != turns.lie(ranks(4, 8))
