from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from clustersim.collectives.group_layout import Counts, cycle_arcs, edge_disjoint_cycles
from clustersim.hardware.models import ScaleUpKind
from clustersim.topology.cluster import link_values
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from clustersim.topology.wires import CUBE_MESH
from tests.unit.topology.factories import make_node

DGX1_V100 = CUBE_MESH[6]


def between(members: tuple[int, ...]) -> Counts:
    return tuple(tuple(DGX1_V100[a][b] for b in members) for a in members)


def weights(cluster: Cluster, *members: int) -> dict[tuple[int, int], float]:
    (arcs,) = cycle_arcs(cluster, np.array([members], dtype=np.int64))
    return {(members[tail], members[head]): float(weight) for tail, head, weight in zip(arcs.tails, arcs.heads, arcs.weights, strict=True)}


@pytest.mark.parametrize("kind", ["nvswitch", "pcie"])
def test_without_a_mesh_the_cycle_goes_by_rank(kind: ScaleUpKind) -> None:
    assert weights(build_cluster(make_node(kind), 1), 1, 4, 6) == {(1, 4): 1.0, (4, 6): 1.0, (6, 1): 1.0}


def test_a_lone_member_has_no_cycle() -> None:
    assert cycle_arcs(build_cluster(make_node(), 1), np.array([[3]], dtype=np.int64)) == ()


def test_a_dgx1_has_six_cycles_that_use_every_link() -> None:
    cycles = edge_disjoint_cycles(between(tuple(range(8))))

    used = Counter(edge for cycle in cycles for edge in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    assert len(cycles) == 6
    assert used == {(a, b): DGX1_V100[a][b] for a in range(8) for b in range(8) if DGX1_V100[a][b]}


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8])
def test_no_cycle_skips_a_member_and_no_link_is_used_too_often(size: int) -> None:
    for members in combinations(range(8), size):
        counts = between(members)

        cycles = edge_disjoint_cycles(counts)

        used = Counter(edge for cycle in cycles for edge in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        assert all(sorted(cycle) == list(range(size)) for cycle in cycles)
        assert all(times <= counts[tail][head] for (tail, head), times in used.items())
        assert len(cycles) <= min(sum(row) for row in counts)


@pytest.mark.parametrize(
    ("members", "found"), [((0, 1), 1), ((0, 3), 2), ((0, 5), 0), ((0, 1, 2, 3), 4), ((0, 1, 2, 3, 4), 0), ((0, 1, 4, 5), 2)]
)
def test_some_members_of_a_dgx1_have_fewer_cycles(members: tuple[int, ...], found: int) -> None:
    assert len(edge_disjoint_cycles(between(members))) == found


def test_cycles_of_a_mesh_use_direct_links_by_their_number() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 1)

    assert weights(cluster, *range(8)) == {
        (a, b): pytest.approx(DGX1_V100[a][b] / 6, rel=1e-12) for a in range(8) for b in range(8) if DGX1_V100[a][b]
    }


def test_members_that_form_no_cycle_go_by_rank() -> None:
    assert weights(build_cluster(make_node("bridge_pairs"), 1), 0, 1, 2) == {(0, 1): 1.0, (1, 2): 1.0, (2, 0): 1.0}


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8])
def test_a_complete_mesh_uses_all_links_alike(size: int) -> None:
    found = weights(build_cluster(make_node("full_mesh"), 1), *range(size))

    assert len(found) == size * (size - 1)
    assert set(found.values()) == {1 / (size - 1)}


def degraded(cluster: Cluster, fraction: float) -> Cluster:
    slow = np.isin([link.name for link in cluster.links], ["node0/gpu0/nvlink/to1", "node0/gpu1/nvlink/to0"])
    return replace(cluster, bandwidth_bytes_per_s=link_values(np.where(slow, fraction, 1.0) * np.asarray(cluster.bandwidth_bytes_per_s)))


def test_a_slower_link_carries_fewer_cycles() -> None:
    found = weights(degraded(build_cluster(make_node("full_mesh", n_accelerators=4), 1), 1 / 2), 0, 1, 2, 3)

    # Lanes of the slow link's width: it has one, the others two. Four cycles fit, and five do not.
    assert found[0, 1] == found[1, 0] == 1 / 4
    assert max(found.values()) == 2 / 4


def test_a_link_that_is_hardly_there_carries_nothing() -> None:
    found = weights(degraded(build_cluster(make_node("full_mesh", n_accelerators=4), 1), 1 / 10), 0, 1, 2, 3)

    assert not {(0, 1), (1, 0)} & found.keys()


def test_the_search_fills_the_members_with_fewest_lanes() -> None:
    lanes = tuple(tuple(0 if a == b else 1 if {a, b} == {0, 1} else 3 for b in range(6)) for a in range(6))

    # Four neighbours with three lanes and one with one. Without the scarcest link first the search gives up at twelve.
    assert len(edge_disjoint_cycles(lanes)) == 13


def test_domains_that_are_wired_alike_share_their_cycles() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 2)

    found = cycle_arcs(cluster, np.array([[0, 1], [8, 9], [0, 3], [10, 12]], dtype=np.int64))

    # Pairs with one link, with two and with none, which goes by rank; two members have the same cycle in any case.
    assert sorted(row for arcs in found for row in arcs.rows.tolist()) == [0, 1, 2, 3]
    assert all(arcs.weights.tolist() == [1.0, 1.0] for arcs in found)


def test_a_large_irregular_mesh_is_not_searched() -> None:
    ladder = tuple(tuple(1 if abs(a - b) in (1, 8) else 0 for b in range(9)) for a in range(9))

    assert edge_disjoint_cycles(ladder) == ()
