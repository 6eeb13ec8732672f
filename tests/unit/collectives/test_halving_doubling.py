from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pattern import Pattern, grouping
from clustersim.collectives.recursive import lay_halving_doubling
from tests.unit.collectives.execution import nodes_of


def laid(per_node: int, n_nodes: int, *members: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    chosen = members or tuple(range(per_node * n_nodes))
    return lay_halving_doubling(cluster, grouping(cluster, np.array([chosen], dtype=np.int64)))


def test_halves_get_smaller_and_grow_again() -> None:
    shares = [phase[0].share for phase in laid(8, 1).phases]

    assert shares == [1 / 2, 1 / 4, 1 / 8, 1 / 8, 1 / 4, 1 / 2]


def test_the_largest_halves_stay_inside_the_domain() -> None:
    steps = [(phase[0].intra_steps, phase[0].inter_steps) for phase in laid(4, 2).phases]

    assert steps == [(1, 0), (1, 0), (0, 1), (0, 1), (1, 0), (1, 0)]


@pytest.mark.parametrize(("n_ranks", "phases"), [(1, 0), (2, 2), (3, 4), (4, 4), (5, 6), (7, 6), (8, 6), (9, 8)])
def test_odd_numbers_take_a_step_before_and_one_after(n_ranks: int, phases: int) -> None:
    assert len(laid(n_ranks, 1).phases) == phases


def test_what_stands_back_sends_its_whole_tensor_to_its_neighbour() -> None:
    first, *_, last = laid(6, 1).phases

    assert (first[0].share, last[0].share) == (1.0, 1.0)


def test_members_that_lie_unevenly_are_not_uniform() -> None:
    assert not laid(4, 2, 0, 1, 2, 4).uniform
