from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.collective_flows import NO_FLOWS, GroupExchange, crossings, exchanged, gathered, joined, on_links, wave
from clustersim.collectives.pattern import Flows, Wave, grouping
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import Crossings, Footprint, chained
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, make_node, ranks


def flows(*edges: tuple[int, int, float]) -> Flows:
    return Flows(
        sources=ranks(*(edge[0] for edge in edges)),
        destinations=ranks(*(edge[1] for edge in edges)),
        counts=np.array([edge[2] for edge in edges]),
    )


def loads(footprint: Footprint) -> dict[int, float]:
    return dict(zip(footprint.link_ids.tolist(), footprint.flows.tolist(), strict=True))


def test_flows_can_be_turned_scaled_and_picked() -> None:
    there = flows((0, 1, 2.0), (2, 3, 5.0))

    assert there.back().sources.tolist() == [1, 3]
    assert there.times(3.0).counts.tolist() == [6.0, 15.0]
    assert there.where(ranks(1)).destinations.tolist() == [3]


def test_no_parts_make_no_flows() -> None:
    assert len(joined([]).sources) == 0


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


def test_a_wave_knows_its_longest_ways_inside_and_between() -> None:
    cluster = build_cluster(make_node(), 2)

    laid = wave(cluster, inside=flows((0, 1, 1.0)), between=flows((0, 8, 1.0)), share=0.5, steps=(3, 4))

    assert (laid.intra_latency_s, laid.intra_steps, laid.inter_steps, laid.share) == (SCALE_UP_S, 3, 4, 0.5)
    assert laid.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_a_wave_adds_what_goes_beside_its_flows() -> None:
    cluster = build_cluster(make_node(), 1)
    routes = cluster.routes(ranks(0), ranks(1))
    beside = [crossings(routes, ranks(0), np.array([10.0]))]

    laid = wave(cluster, inside=flows((0, 1, 1.0)), between=NO_FLOWS, share=1.0, steps=(1, 0), beside=beside)

    assert cluster.links[0].name == "node0/gpu0/nvlink/up"
    assert loads(laid.footprint)[0] == 11.0


def one_exchange(*pairs: tuple[int, int]) -> Wave:
    cluster = build_cluster(make_node(), 2)
    sources, destinations = (ranks(*(pair[end] for pair in pairs)) for end in (0, 1))
    groups = grouping(cluster, np.array([[0, 1, 8, 9], [2, 3, 4, 10]], dtype=np.int64))
    return exchanged(cluster, groups, [GroupExchange(sources=sources, destinations=destinations, n_parts=3)], 0.25)


def test_an_exchange_inside_every_domain_is_a_step_inside() -> None:
    laid = one_exchange((0, 1))

    assert (laid.intra_steps, laid.inter_steps, laid.inter_latency_s) == (1, 0, 0.0)
    assert set(laid.footprint.flows.tolist()) == {3.0}


def test_an_exchange_that_leaves_a_domain_in_any_group_is_a_step_between() -> None:
    laid = one_exchange((2, 3))

    assert (laid.intra_steps, laid.inter_steps) == (0, 1)
    assert laid.intra_latency_s == SCALE_UP_S
