from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.collective_flows import (
    BATCH,
    NO_FLOWS,
    Batch,
    GroupExchange,
    between_members,
    crossings,
    exchanged,
    flow_set,
    gathered,
    in_batches,
    on_links,
    separate_flow_sets,
)
from clustersim.collectives.pattern import Flows, FlowSet, grouping
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import Crossings, RouteSet, chained
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, make_node, ranks


def flows(*edges: tuple[int, int, float]) -> Flows:
    return Flows(
        sources=ranks(*(edge[0] for edge in edges)),
        destinations=ranks(*(edge[1] for edge in edges)),
        counts=np.array([edge[2] for edge in edges]),
    )


def loads(route_set: RouteSet) -> dict[int, float]:
    return dict(zip(route_set.link_ids.tolist(), route_set.flows.tolist(), strict=True))


def test_flows_can_be_turned_scaled_and_picked() -> None:
    there = flows((0, 1, 2.0), (2, 3, 5.0))

    assert there.back().sources.tolist() == [1, 3]
    assert there.times(3.0).counts.tolist() == [6.0, 15.0]
    assert there.where(ranks(1)).destinations.tolist() == [3]


def test_flows_add_up_link_by_link() -> None:
    one = crossing(links=(1, 4), amounts=(1.0, 2.0))
    other = crossing(links=(0, 4), amounts=(8.0, 0.5))

    assert loads(gathered([one, other])) == {0: 8.0, 1: 1.0, 4: 2.5}
    assert loads(gathered([chained([one, other])])) == {0: 8.0, 1: 1.0, 4: 2.5}


def crossing(*, links: tuple[int, ...], amounts: tuple[float, ...]) -> Crossings:
    """Return one flow of rank 0 over some links."""
    return Crossings(
        ranks=ranks(0), starts=ranks(0, len(links)), link_ids=ranks(*links), amounts=np.array(amounts), latency_s=np.array([1e-6])
    )


def test_a_link_that_is_listed_twice_carries_twice_as_many() -> None:
    assert loads(on_links(ranks(7, 3, 7), 1.5)) == {3: 1.5, 7: 3.0}


def test_a_flow_set_knows_its_longest_ways_inside_and_between() -> None:
    cluster = build_cluster(make_node(), 2)

    laid = flow_set(cluster, inside=flows((0, 1, 1.0)), between=flows((0, 8, 1.0)), share=0.5, steps=(3, 4))

    assert (laid.intra_latency_s, laid.intra_steps, laid.inter_steps, laid.share) == (SCALE_UP_S, 3, 4, 0.5)
    assert laid.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_a_flow_set_adds_what_goes_beside_its_flows() -> None:
    cluster = build_cluster(make_node(), 1)
    routes = cluster.routes(ranks(0), ranks(1))
    beside = [crossings(routes, ranks(0), np.array([10.0]))]

    laid = flow_set(cluster, inside=flows((0, 1, 1.0)), between=NO_FLOWS, share=1.0, steps=(1, 0), beside=beside)

    assert cluster.links[0].name == "node0/gpu0/nvlink/up"
    assert loads(laid.route_set)[0] == 11.0


def one_exchange(*pairs: tuple[int, int]) -> FlowSet:
    cluster = build_cluster(make_node(), 2)
    sources, destinations = (ranks(*(pair[end] for pair in pairs)) for end in (0, 1))
    groups = grouping(cluster, np.array([[0, 1, 8, 9], [2, 3, 4, 10]], dtype=np.int64))
    return exchanged(cluster, groups, [GroupExchange(sources=sources, destinations=destinations, n_parts=3)], 0.25)


def test_an_exchange_inside_every_domain_is_a_step_inside() -> None:
    laid = one_exchange((0, 1))

    assert (laid.intra_steps, laid.inter_steps, laid.inter_latency_s) == (1, 0, 0.0)
    assert set(laid.route_set.flows.tolist()) == {3.0}


def test_an_exchange_that_leaves_a_domain_in_any_group_is_a_step_between() -> None:
    laid = one_exchange((2, 3))

    assert (laid.intra_steps, laid.inter_steps) == (0, 1)
    assert laid.intra_latency_s == SCALE_UP_S


def flows_on(cluster: Cluster, route_set: RouteSet) -> dict[str, float]:
    used = zip(route_set.link_ids.tolist(), route_set.flows.tolist(), strict=True)
    return {cluster.links[link].name: flows for link, flows in used}


def batch(*pairs: tuple[int, int], leaves: list[bool]) -> Batch:
    return Batch(sources=ranks(*(a for a, _ in pairs)), destinations=ranks(*(b for _, b in pairs)), leaves=np.array(leaves))


def test_flows_inside_a_domain_and_between_domains_are_flow_sets_of_their_own() -> None:
    cluster = build_cluster(make_node(), 2)

    inside, between = separate_flow_sets(cluster, [batch((0, 1), (0, 8), leaves=[False, True])], share=0.5)

    assert flows_on(cluster, inside.route_set) == {"node0/gpu0/nvlink/up": 1.0, "node0/gpu1/nvlink/down": 1.0}
    assert {name for name in flows_on(cluster, between.route_set) if "nic" in name} == {"node0/nic0/tx", "node1/nic0/rx"}
    assert (inside.share, between.share) == (0.5, 0.5)


def test_each_kind_takes_one_step_over_its_longest_way() -> None:
    inside, between = separate_flow_sets(build_cluster(make_node(), 2), [batch((0, 1), (0, 8), leaves=[False, True])], share=1.0)

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (between.intra_steps, between.inter_steps) == (0, 1)
    assert (inside.intra_latency_s, inside.inter_latency_s) == (SCALE_UP_S, 0.0)
    assert between.intra_latency_s == 0.0
    assert between.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_batches_add_up() -> None:
    cluster = build_cluster(make_node(), 1)
    parts = [batch((0, 1), leaves=[False]), batch((0, 2), leaves=[False])]

    (flow_set,) = separate_flow_sets(cluster, parts, share=1.0)

    assert flows_on(cluster, flow_set.route_set)["node0/gpu0/nvlink/up"] == 2.0


def test_a_link_beside_the_routes_carries_its_weight_for_each_flow() -> None:
    cluster = build_cluster(make_node(), 1)
    memory = cluster.memory_link(ranks(0))
    flow = Batch(
        sources=ranks(0, 1), destinations=ranks(2, 2), leaves=np.zeros(2, dtype=bool), beside=np.repeat(memory, 2), beside_weight=4.0
    )

    (flow_set,) = separate_flow_sets(cluster, [flow], share=1.0)

    assert flows_on(cluster, flow_set.route_set)["node0/memory"] == 8.0


def test_members_of_all_groups_are_paired_by_their_places() -> None:
    cluster = build_cluster(make_node(), 2)
    group = grouping(cluster, np.array([[0, 1, 8], [2, 3, 9]]))

    (pairs,) = between_members(group, ranks(0, 1), ranks(1, 2))

    assert list(zip(pairs.sources, pairs.destinations, pairs.leaves, strict=True)) == [
        (0, 1, False),
        (1, 8, True),
        (2, 3, False),
        (3, 9, True),
    ]


def test_no_batch_is_larger_than_one_batch() -> None:
    cluster = build_cluster(make_node(), 1)
    group, places = grouping(cluster, np.arange(8)[None]), np.zeros(3 * BATCH + 1, dtype=np.int64)

    sizes = [len(pairs.sources) for pairs in between_members(group, places, places + 1)]

    assert sizes == [BATCH, BATCH, BATCH, 1]


def test_flows_keep_their_counts_in_batches() -> None:
    n = BATCH + 5
    flows = Flows(sources=np.zeros(n, dtype=np.int64), destinations=np.ones(n, dtype=np.int64), counts=np.arange(n, dtype=np.float64))

    parts = list(in_batches(flows, leave=True))

    assert [len(part.sources) for part in parts] == [BATCH, 5]
    assert all(part.leaves.all() for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.counts for part in parts if part.counts is not None]), flows.counts)
