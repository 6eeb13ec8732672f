from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pattern import Pattern, grouping
from clustersim.collectives.recursive import GatherOp, aggregated_tree_shifts, bruck_shifts, lay_recursive, shift_exchanges
from tests.unit.collectives.execution import load_by_name, nodes_of


def laid(op: GatherOp, per_node: int, n_nodes: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    return lay_recursive(op, cluster, grouping(cluster, np.arange(per_node * n_nodes, dtype=np.int64)[None]))


def parts(pattern: Pattern, n_ranks: int) -> list[float]:
    return [phase[0].share * float(phase[0].route_set.flows.max()) * n_ranks for phase in pattern.phases]


def test_an_all_gather_doubles_what_it_sends() -> None:
    assert parts(laid("all_gather", 8, 1), 8) == [1.0, 2.0, 4.0]


def test_a_reduce_scatter_halves_what_it_sends() -> None:
    assert parts(laid("reduce_scatter", 8, 1), 8) == [4.0, 2.0, 1.0]


def test_an_odd_number_sends_the_rest_last() -> None:
    assert parts(laid("all_gather", 7, 1), 7) == pytest.approx([1.0, 2.0, 3.0], rel=1e-12)
    assert parts(laid("reduce_scatter", 7, 1), 7) == pytest.approx([3.0, 2.0, 1.0], rel=1e-12)


@pytest.mark.parametrize(("op", "inter"), [("all_gather", [1, 0, 0]), ("reduce_scatter", [0, 0, 1])])
def test_what_leaves_the_domain_is_the_least(op: GatherOp, inter: list[int]) -> None:
    pattern = laid(op, 4, 2)

    assert [phase[0].inter_steps for phase in pattern.phases] == inter
    assert {share for name, share in load_by_name(nodes_of(4, 2), pattern).items() if "nic" in name} == {1 / 8}


def test_brucks_distances_grow_with_what_is_sent() -> None:
    assert [(shift.distance, len(shift.offsets)) for shift in bruck_shifts(11)] == [(1, 1), (2, 2), (4, 4), (8, 3)]


def test_aggregated_trees_send_little_far_and_much_near() -> None:
    shifts = aggregated_tree_shifts(11)

    assert [(shift.distance, shift.offsets.tolist()) for shift in shifts] == [(8, [0]), (4, [0]), (2, [0, 4, 8]), (1, [0, 2, 4, 6, 8])]


def test_a_reduce_scatter_goes_the_ways_of_the_all_gather_back() -> None:
    there = shift_exchanges("all_gather", bruck_shifts(5), 5)

    back = shift_exchanges("reduce_scatter", bruck_shifts(5), 5)

    for forward, backward in zip(there, reversed(back), strict=True):
        assert forward.n_parts == backward.n_parts
        assert forward.sources.tolist() == backward.destinations.tolist()
        assert forward.destinations.tolist() == backward.sources.tolist()
