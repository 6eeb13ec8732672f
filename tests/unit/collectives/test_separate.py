from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.collective_flows import BATCH, NO_FLOWS
from clustersim.collectives.pattern import Flows, grouping
from clustersim.collectives.separate import Batch, between_members, in_batches, separate_waves
from clustersim.topology.cluster import Cluster
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import Footprint
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, make_node, ranks


def flows_on(cluster: Cluster, footprint: Footprint) -> dict[str, float]:
    used = zip(footprint.link_ids.tolist(), footprint.flows.tolist(), strict=True)
    return {cluster.links[link].name: flows for link, flows in used}


def batch(*pairs: tuple[int, int], leaves: list[bool]) -> Batch:
    return Batch(sources=ranks(*(a for a, _ in pairs)), destinations=ranks(*(b for _, b in pairs)), leaves=np.array(leaves))


def test_flows_inside_a_domain_and_between_domains_are_waves_of_their_own() -> None:
    cluster = build_cluster(make_node(), 2)

    inside, between = separate_waves(cluster, [batch((0, 1), (0, 8), leaves=[False, True])], share=0.5)

    assert flows_on(cluster, inside.footprint) == {"node0/gpu0/nvlink/up": 1.0, "node0/gpu1/nvlink/down": 1.0}
    assert {name for name in flows_on(cluster, between.footprint) if "nic" in name} == {"node0/nic0/tx", "node1/nic0/rx"}
    assert (inside.share, between.share) == (0.5, 0.5)


def test_each_kind_takes_one_step_over_its_longest_way() -> None:
    inside, between = separate_waves(build_cluster(make_node(), 2), [batch((0, 1), (0, 8), leaves=[False, True])], share=1.0)

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (between.intra_steps, between.inter_steps) == (0, 1)
    assert (inside.intra_latency_s, inside.inter_latency_s) == (SCALE_UP_S, 0.0)
    assert between.intra_latency_s == 0.0
    assert between.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_a_kind_without_flows_is_no_wave() -> None:
    (wave,) = separate_waves(build_cluster(make_node(), 2), [batch((0, 1), leaves=[False])], share=1.0)

    assert wave.inter_steps == 0


def test_batches_add_up() -> None:
    cluster = build_cluster(make_node(), 1)
    parts = [batch((0, 1), leaves=[False]), batch((0, 2), leaves=[False])]

    (wave,) = separate_waves(cluster, parts, share=1.0)

    assert flows_on(cluster, wave.footprint)["node0/gpu0/nvlink/up"] == 2.0


def test_a_link_beside_the_routes_carries_its_weight_for_each_flow() -> None:
    cluster = build_cluster(make_node(), 1)
    memory = cluster.memory_link(ranks(0))
    flow = Batch(
        sources=ranks(0, 1), destinations=ranks(2, 2), leaves=np.zeros(2, dtype=bool), beside=np.repeat(memory, 2), beside_weight=4.0
    )

    (wave,) = separate_waves(cluster, [flow], share=1.0)

    assert flows_on(cluster, wave.footprint)["node0/memory"] == 8.0


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


def test_no_flows_are_no_batches() -> None:
    assert list(in_batches(NO_FLOWS, leave=False)) == []
