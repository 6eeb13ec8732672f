from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pattern import FlowSet, Pattern, grouping
from clustersim.collectives.ring import ROUNDS, RingOp, lay_ring
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S


def pattern_of(op: RingOp, per_node: int, n_nodes: int, *members: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    chosen = members or tuple(range(per_node * n_nodes))
    return lay_ring(op, cluster, grouping(cluster, np.array([chosen], dtype=np.int64)))


def ring(op: RingOp, per_node: int, n_nodes: int) -> FlowSet:
    ((found,),) = pattern_of(op, per_node, n_nodes).phases
    return found


@pytest.mark.parametrize(("op", "rounds"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_an_edge_carries_all_but_one_part_in_every_round(op: RingOp, rounds: int) -> None:
    # A tensor of 8 parts among 8 ranks, shared by 8 rings: 7 parts pass each rank on every trip.
    assert ring(op, 8, 1).share * 8 * 8 == rounds * 7.0


def test_more_rings_share_the_tensor() -> None:
    assert ring("all_gather", 1, 4).share == 3 / 4
    assert ring("all_gather", 2, 2).share == 3 / 4 / 2


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    shares = [ring(op, 5, 2).share for op in ("reduce_scatter", "all_gather")]

    assert ring("all_reduce", 5, 2).share == pytest.approx(sum(shares), rel=1e-15)


@pytest.mark.parametrize("op", list(ROUNDS))
def test_inside_a_domain_every_step_is_inside(op: RingOp) -> None:
    assert (ring(op, 8, 1).intra_steps, ring(op, 8, 1).inter_steps) == (7 * ROUNDS[op], 0)


def test_over_domains_some_steps_go_between_them() -> None:
    # 32 ranks over 4 domains, there and back: 62 steps, 6 of them between domains.
    assert (ring("all_reduce", 8, 4).intra_steps, ring("all_reduce", 8, 4).inter_steps) == (56, 6)


def test_one_rank_in_each_domain_takes_no_step_inside() -> None:
    assert (ring("all_gather", 1, 4).intra_steps, ring("all_gather", 1, 4).inter_steps) == (0, 3)


def test_the_ways_are_those_of_the_longest_edges() -> None:
    found = ring("all_gather", 2, 2)

    assert found.intra_latency_s == SCALE_UP_S
    assert found.inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_members_that_lie_unevenly_are_not_uniform() -> None:
    assert pattern_of("all_reduce", 4, 2).uniform
    assert not pattern_of("all_reduce", 4, 2, 0, 1, 4).uniform


def test_every_adapter_of_an_uneven_group_that_is_used_carries_its_ring() -> None:
    load = load_by_name(nodes_of(4, 2), pattern_of("all_gather", 4, 2, 0, 1, 2, 4, 5))

    # Two rings of five ranks: 4/5 of half the tensor.
    assert {name: share for name, share in load.items() if name.endswith("/tx")} == {
        f"node{node}/nic{index}/tx": pytest.approx(4 / 5 / 2, rel=1e-12) for node in (0, 1) for index in (0, 1)
    }
