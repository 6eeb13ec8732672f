from __future__ import annotations

import numpy as np

from clustersim.collectives.hierarchical import lay_hierarchical
from clustersim.collectives.pattern import Pattern, grouping
from tests.unit.collectives.execution import load_by_name, nodes_of


def laid(per_node: int, n_nodes: int, *members: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    chosen = members or tuple(range(per_node * n_nodes))
    return lay_hierarchical(cluster, grouping(cluster, np.array([chosen], dtype=np.int64)))


def test_two_levels_have_three_phases() -> None:
    steps = [(phase[0].intra_steps, phase[0].inter_steps) for phase in laid(4, 3).phases]

    assert steps == [(3, 0), (0, 4), (3, 0)]


def test_inside_one_domain_there_is_no_phase_between() -> None:
    assert [phase[0].inter_steps for phase in laid(4, 1).phases] == [0, 0]


def test_with_one_member_in_each_domain_there_is_no_phase_inside() -> None:
    assert [phase[0].intra_steps for phase in laid(1, 4).phases] == [0]


def test_only_as_many_rails_leave_as_the_smallest_domain_has_members() -> None:
    cluster = nodes_of(4, 2)

    load = load_by_name(cluster, laid(4, 2, 0, 1, 2, 4, 5))

    assert [name for name in load if name.endswith("/tx")] == ["node0/nic0/tx", "node0/nic1/tx", "node1/nic0/tx", "node1/nic1/tx"]
