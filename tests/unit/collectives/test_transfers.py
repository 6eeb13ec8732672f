from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pattern import Wave
from clustersim.collectives.transfers import lay_transfers
from clustersim.topology.cluster import Cluster
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, make_node, ranks


def lay_pairs(cluster: Cluster, sources: tuple[int, ...], destinations: tuple[int, ...]) -> Wave:
    (phase,) = lay_transfers(cluster, ranks(*sources), ranks(*destinations)).phases
    (wave,) = phase
    return wave


def test_transfers_cross_the_links_of_their_routes() -> None:
    cluster = build_cluster(make_node(), 2)

    wave = lay_pairs(cluster, (0, 0, 1), (1, 2, 2))

    used = dict(zip(wave.footprint.link_ids.tolist(), wave.footprint.flows.tolist(), strict=True))
    assert {cluster.links[link].name: flows for link, flows in used.items()} == {
        "node0/gpu0/nvlink/up": 2.0,
        "node0/gpu1/nvlink/up": 1.0,
        "node0/gpu1/nvlink/down": 1.0,
        "node0/gpu2/nvlink/down": 2.0,
    }


def test_a_step_is_inside_only_if_no_pair_leaves_its_domain() -> None:
    cluster = build_cluster(make_node(), 2)

    inside, across = lay_pairs(cluster, (0, 9), (1, 10)), lay_pairs(cluster, (0, 7), (1, 8))

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (across.intra_steps, across.inter_steps) == (0, 1)


def test_transfers_wait_for_the_longest_way() -> None:
    cluster = build_cluster(make_node(), 2)

    assert lay_pairs(cluster, (0, 9), (1, 10)).intra_latency_s == SCALE_UP_S
    assert lay_pairs(cluster, (0, 7), (1, 15)).inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_transfers_of_different_length_are_uneven() -> None:
    cluster = build_cluster(make_node(), 2)

    assert lay_transfers(cluster, ranks(0, 1), ranks(8, 9)).uniform
    assert not lay_transfers(cluster, ranks(0, 7), ranks(1, 15)).uniform


def test_what_stays_on_its_rank_moves_nothing() -> None:
    wave = lay_pairs(build_cluster(make_node(), 1), (3,), (3,))

    assert wave.share == 0.0
    assert len(wave.footprint.link_ids) == 0


def test_links_are_listed_once_in_ascending_order() -> None:
    wave = lay_pairs(build_cluster(make_node("pcie"), 2), (0, 1, 2, 8), (8, 9, 3, 0))

    assert (np.diff(wave.footprint.link_ids) > 0).all()
    assert (wave.footprint.flows > 0.0).all()
