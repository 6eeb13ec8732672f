from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from clustersim.collectives.ring import ROUNDS, RingOp, ramp_s, ring_demand, ring_flow_bytes, ring_latency_s, transfer_demand
from clustersim.collectives.rings import Pairs, Rings
from clustersim.topology.load import Footprint
from tests.unit.engine.factories import IDEAL_NETWORK, LATENT_NETWORK

NO_LINKS = Footprint(link_ids=np.zeros(0, dtype=np.int64), flows=np.zeros(0))


def rings(*, n_ranks: int = 8, n_domains: int = 1, n_rings: int = 8, intra_s: float = 0.0, inter_s: float = 0.0) -> Rings:
    return Rings(
        footprint=NO_LINKS,
        n_rings=n_rings,
        group_size=n_ranks,
        n_domains=n_domains,
        uniform=True,
        intra_latency_s=intra_s,
        inter_latency_s=inter_s,
    )


def pairs(*, inside: bool, latency_s: float = 0.0) -> Pairs:
    one_link = Footprint(link_ids=np.array([0], dtype=np.int64), flows=np.ones(1))
    return Pairs(footprint=one_link, inside=inside, latency_s=latency_s, uniform=True)


@pytest.mark.parametrize(("op", "rounds"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_an_edge_carries_all_but_one_part_in_every_round(op: RingOp, rounds: int) -> None:
    # A tensor of 8 parts among 8 ranks: 7 parts pass each edge on every trip.
    assert ring_flow_bytes(op, size_bytes=8.0, n_ranks=8, n_rings=1) == rounds * 7.0


def test_more_rings_share_the_tensor() -> None:
    assert ring_flow_bytes("all_reduce", size_bytes=8.0, n_ranks=8, n_rings=4) == 14.0 / 4


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    parts = [ring_flow_bytes(op, size_bytes=3.0, n_ranks=5, n_rings=2) for op in ("reduce_scatter", "all_gather")]

    assert ring_flow_bytes("all_reduce", size_bytes=3.0, n_ranks=5, n_rings=2) == pytest.approx(sum(parts), rel=1e-15)


@pytest.mark.parametrize("op", list(ROUNDS))
def test_inside_a_domain_every_step_is_an_inside_hop(op: RingOp) -> None:
    steps = {"all_reduce": 14, "all_gather": 7, "reduce_scatter": 7}[op]

    assert ring_latency_s(op, rings(), LATENT_NETWORK) == pytest.approx(11e-6 + steps * 1.3e-6, rel=1e-12)


def test_over_domains_some_steps_go_between_them() -> None:
    # 32 ranks over 4 domains, there and back: 62 steps, 6 of them between domains.
    laid = rings(n_ranks=32, n_domains=4)

    assert ring_latency_s("all_reduce", laid, LATENT_NETWORK) == pytest.approx(11e-6 + 56 * 1.3e-6 + 6 * 5e-6, rel=1e-12)


def test_one_rank_in_each_domain_takes_no_step_inside() -> None:
    laid = rings(n_ranks=4, n_domains=4, n_rings=1)

    assert ring_latency_s("all_gather", laid, LATENT_NETWORK) == pytest.approx(11e-6 + 3 * 5e-6, rel=1e-12)


def test_a_hop_includes_the_way_along_the_wires() -> None:
    laid = rings(n_ranks=16, n_domains=2, intra_s=0.25e-6, inter_s=3e-6)

    latency_s = ring_latency_s("reduce_scatter", laid, LATENT_NETWORK)

    assert latency_s == pytest.approx(11e-6 + 14 * (1.3e-6 + 0.25e-6) + 1 * (5e-6 + 3e-6), rel=1e-12)


def test_the_pipeline_fills_with_the_root_of_the_size() -> None:
    assert ramp_s(LATENT_NETWORK, size_bytes=1e8, n_domains=1) == pytest.approx(7e-9 * 1e4, rel=1e-12)


def test_filling_takes_another_constant_over_the_network() -> None:
    assert ramp_s(LATENT_NETWORK, size_bytes=1e8, n_domains=2) == pytest.approx(23e-9 * 1e4, rel=1e-12)


def test_a_demand_is_latency_ramp_up_and_bytes() -> None:
    demand = ring_demand("all_reduce", rings(), LATENT_NETWORK, size_bytes=1e6)

    assert demand.bytes_per_flow == pytest.approx(2 * 7 / 8 * 1e6 / 8, rel=1e-12)
    assert demand.latency_s == pytest.approx(11e-6 + 14 * 1.3e-6 + 7e-9 * 1e3, rel=1e-12)


def test_pieces_pay_latency_each_and_move_the_same_bytes() -> None:
    whole = ring_demand("all_reduce", rings(), LATENT_NETWORK, size_bytes=4e6)

    pieces = ring_demand("all_reduce", rings(), LATENT_NETWORK, size_bytes=4e6, pieces=4)

    assert pieces.bytes_per_flow == whole.bytes_per_flow
    assert pieces.latency_s == pytest.approx(4 * (11e-6 + 14 * 1.3e-6 + 7e-9 * sqrt(1e6)), rel=1e-12)


@pytest.mark.parametrize("op", list(ROUNDS))
def test_a_group_of_one_has_nothing_to_say(op: RingOp) -> None:
    demand = ring_demand(op, rings(n_ranks=1, n_rings=1), LATENT_NETWORK, size_bytes=1e9)

    assert (demand.bytes_per_flow, demand.latency_s) == (0.0, 0.0)


def test_without_constants_only_bytes_are_left() -> None:
    assert ring_demand("all_gather", rings(), IDEAL_NETWORK, size_bytes=1e9).latency_s == 0.0


@pytest.mark.parametrize(("inside", "hop_s"), [(True, 1.3e-6), (False, 5e-6)])
def test_a_send_starts_like_a_collective_and_takes_one_hop(inside: bool, hop_s: float) -> None:
    demand = transfer_demand(pairs(inside=inside, latency_s=0.5e-6), LATENT_NETWORK, size_bytes=3e6)

    assert demand.bytes_per_flow == 3e6
    assert demand.latency_s == pytest.approx(11e-6 + hop_s + 0.5e-6, rel=1e-12)


def test_a_hop_inside_does_not_cost_what_one_between_domains_does() -> None:
    dearer = replace(LATENT_NETWORK, inter_hop_s=1.0)

    assert transfer_demand(pairs(inside=True), dearer, size_bytes=1.0).latency_s < 1e-3
    assert transfer_demand(pairs(inside=False), dearer, size_bytes=1.0).latency_s > 1.0


def test_what_stays_on_its_rank_moves_nothing() -> None:
    stays = Pairs(footprint=NO_LINKS, inside=True, latency_s=0.0, uniform=True)

    assert transfer_demand(stays, LATENT_NETWORK, size_bytes=1e9).bytes_per_flow == 0.0
