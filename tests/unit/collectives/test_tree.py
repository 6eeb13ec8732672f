from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clustersim.collectives.pattern import grouping
from clustersim.collectives.tree import depth, lay_tree, two_trees
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import make_node

MANY = [*range(1, 10), 16, 33, 1000, 1024]


@pytest.mark.parametrize("n", MANY)
def test_both_trees_reach_everyone_from_one_root(n: int) -> None:
    for parents in two_trees(n):
        assert (parents < 0).sum() == 1
        for place in range(n):
            climbed = place
            for _ in range(depth(n)):
                climbed = int(parents[climbed]) if parents[climbed] >= 0 else climbed
            assert parents[climbed] < 0


@pytest.mark.parametrize("n", MANY)
def test_nobody_has_more_than_two_children_and_nobody_has_any_in_both_trees(n: int) -> None:
    children = [Counter(parents[parents >= 0].tolist()) for parents in two_trees(n)]

    assert all(count <= 2 for tree in children for count in tree.values())
    assert not children[0].keys() & children[1].keys()


def test_the_steps_are_chains_and_levels_there_and_back() -> None:
    cluster = nodes_of(4, 5)

    ((tree,),) = lay_tree(cluster, grouping(cluster, np.arange(20, dtype=np.int64)[None])).phases

    assert (tree.intra_steps, tree.inter_steps) == (2 * 3, 2 * 2)


def test_a_group_that_lies_unevenly_has_as_many_rails_as_its_smallest_domain_members() -> None:
    cluster = build_cluster(make_node(), 2)

    pattern = lay_tree(cluster, grouping(cluster, np.array([[0, 1, 2, 8]], dtype=np.int64)))

    load = load_by_name(cluster, pattern)
    assert not pattern.uniform
    assert {name: load[name] for name in load if "nic" in name} == {
        "node0/nic0/tx": 1.0,
        "node0/nic0/rx": 1.0,
        "node1/nic0/tx": 1.0,
        "node1/nic0/rx": 1.0,
    }
    # The chain 2, 1, 0 and back: the one in the middle passes everything on, both ways.
    assert [load[f"node0/gpu{index}/nvlink/up"] for index in range(3)] == [1.0, 2.0, 1.0]


def test_groups_with_fewer_rails_carry_more_on_each() -> None:
    cluster = build_cluster(make_node(), 2)

    pattern = lay_tree(cluster, grouping(cluster, np.array([[0, 1, 2, 8], [4, 5, 12, 13]], dtype=np.int64)))

    load = load_by_name(cluster, pattern)
    assert (load["node0/nic0/tx"], load["node0/nic4/tx"], load["node0/nic5/tx"]) == (1.0, 0.5, 0.5)
