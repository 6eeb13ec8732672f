from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pairwise import PAIRWISE, partners
from clustersim.collectives.pattern import Grouping, Pattern, grouping, route_set
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.beside import flown_s
from tests.unit.collectives.execution import everybody, laid, nodes_of, one_domain
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SPINE_S, make_fabric, make_node, ranks


def round_by_round_s(cluster: Cluster, group: Grouping) -> float:
    """Return the time for each byte of the tensor, every round routed and timed alone."""
    total_s = 0.0
    for there in partners(group.size, np.arange(1, group.size, dtype=np.int64)):
        routes = cluster.routes(group.members.reshape(-1), group.members[:, there].reshape(-1))
        used = route_set(routes)
        total_s += float((used.flows / cluster.bandwidth_bytes_per_s[used.link_ids]).max()) / group.size
    return total_s


def steps_of(pattern: Pattern) -> list[tuple[int, int]]:
    return [(flow_set.intra_steps, flow_set.inter_steps) for phase in pattern.phases for flow_set in phase]


def test_powers_of_two_swap_with_one_partner() -> None:
    there = partners(8, ranks(*range(1, 8)))

    for row in there:
        np.testing.assert_array_equal(row[row], np.arange(8))


def test_other_numbers_take_turns() -> None:
    assert partners(3, ranks(1, 2)).tolist() == [[1, 2, 0], [2, 0, 1]]


@pytest.mark.parametrize("n", [2, 5, 8])
def test_rounds_that_are_alike_are_one_phase(n: int) -> None:
    pattern = laid(PAIRWISE, one_domain(n))

    assert steps_of(pattern) == [(n - 1, 0)]
    assert pattern.phases[0][0].share == pytest.approx((n - 1) / n, rel=1e-12)
    assert set(pattern.phases[0][0].route_set.flows.tolist()) == {1.0}


def test_rounds_inside_nodes_and_between_them_are_counted_apart() -> None:
    assert steps_of(laid(PAIRWISE, nodes_of(4, 2))) == [(3, 0), (0, 4)]


def test_all_rounds_are_counted_once() -> None:
    pattern = laid(PAIRWISE, nodes_of(5, 7, fabric=make_fabric("leaf_spine", nodes_per_leaf=2, oversubscription=2.0)))

    assert sum(intra + inter for intra, inter in steps_of(pattern)) == 34


@pytest.mark.parametrize("kind", ["nvswitch", "cube_mesh"])
@pytest.mark.parametrize("topology", ["rail_optimized", "leaf_spine"])
@pytest.mark.parametrize(("n_nodes", "members"), [(3, 8), (5, 6), (1, 7)])
def test_merged_rounds_take_as_long_as_each_alone(kind: str, topology: str, n_nodes: int, members: int) -> None:
    fabric = make_fabric("leaf_spine" if topology == "leaf_spine" else "rail_optimized", nodes_per_leaf=2, oversubscription=3.0)
    node = {kind: make_node(kind) for kind in ("nvswitch", "pcie", "cube_mesh", "bridge_pairs")}[kind]
    cluster = build_cluster(node, n_nodes, fabric)
    chosen = np.concatenate([np.arange(members) + 8 * place for place in range(n_nodes)])
    group = grouping(cluster, chosen[None])

    assert flown_s(cluster, PAIRWISE.lay(cluster, group)) == pytest.approx(round_by_round_s(cluster, group), rel=1e-9)


def test_latencies_of_merged_rounds_add_up() -> None:
    cluster = nodes_of(1, 8, fabric=make_fabric("leaf_spine", nodes_per_leaf=2))

    pattern = laid(PAIRWISE, cluster)

    below_s = 2 * NIC_S + 2 * CABLE_S + LEAF_S
    above_s = 2 * NIC_S + 4 * CABLE_S + 2 * LEAF_S + SPINE_S
    total_s = sum(flow_set.inter_steps * flow_set.inter_latency_s for phase in pattern.phases for flow_set in phase)
    assert total_s == pytest.approx(below_s + 6 * above_s, rel=1e-12)


@pytest.mark.parametrize("n_nodes", [125, 128])
def test_a_thousand_ranks_are_few_phases(n_nodes: int) -> None:
    cluster = build_cluster(make_node(), n_nodes, make_fabric("leaf_spine", nodes_per_leaf=32, oversubscription=2.0))

    pattern = PAIRWISE.lay(cluster, everybody(cluster))

    assert len(pattern.phases) < 20
    assert sum(flow_set.share for (flow_set,) in pattern.phases) == pytest.approx((8 * n_nodes - 1) / (8 * n_nodes), rel=1e-12)
