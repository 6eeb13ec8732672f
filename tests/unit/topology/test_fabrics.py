from __future__ import annotations

import numpy as np
import pytest

from clustersim.errors import ScenarioError
from clustersim.topology import FABRICS
from clustersim.topology.fabrics import fat_tree, hop_latency_s, leaf_spine, rail_optimized, single_switch
from tests.unit.topology.factories import CABLE_S, LEAF_S, SPINE_S, make_fabric, ranks


def test_a_single_switch_is_one_leaf() -> None:
    tree = single_switch(make_fabric("single_switch"), 100, 8)

    assert (tree.n_leaves, tree.n_pods) == (1, 1)
    np.testing.assert_array_equal(tree.leaf_of(ranks(0, 50, 99), ranks(0, 3, 7)), 0)


def test_a_plain_leaf_holds_all_adapters_of_its_nodes() -> None:
    tree = leaf_spine(make_fabric("leaf_spine", nodes_per_leaf=4), 10, 8)

    assert tree.n_leaves == 3
    np.testing.assert_array_equal(tree.leaf_of(ranks(0, 3, 3, 4, 9), ranks(0, 0, 7, 7, 1)), [0, 0, 0, 1, 2])


def test_a_rail_has_a_leaf_in_every_unit() -> None:
    tree = rail_optimized(make_fabric(nodes_per_leaf=4), 10, 8)

    assert tree.n_leaves == 24
    np.testing.assert_array_equal(tree.leaf_of(ranks(0, 3, 3, 4, 9), ranks(0, 0, 7, 7, 1)), [0, 0, 7, 15, 17])


def test_pods_hold_their_leaves_in_order() -> None:
    tree = fat_tree(make_fabric("fat_tree", nodes_per_leaf=4, leaves_per_pod=2), 18, 8)

    assert (tree.n_leaves, tree.n_pods) == (5, 3)
    np.testing.assert_array_equal(tree.pod_of(np.arange(5)), [0, 0, 1, 1, 2])


@pytest.mark.parametrize("topology", ["leaf_spine", "rail_optimized"])
def test_pods_give_every_fabric_with_leaves_a_core(topology: str) -> None:
    build = leaf_spine if topology == "leaf_spine" else rail_optimized

    assert build(make_fabric(nodes_per_leaf=1, leaves_per_pod=0), 16, 8).n_pods == 1
    assert build(make_fabric(nodes_per_leaf=1, leaves_per_pod=8), 16, 8).n_pods > 1


def test_a_fat_tree_without_pods_is_refused() -> None:
    with pytest.raises(ScenarioError, match="three tiers") as caught:
        fat_tree(make_fabric("fat_tree"), 16, 8)

    assert caught.value.field == "cluster.fabric.leaves_per_pod"


def test_a_cable_carries_half_of_the_switch_at_each_end() -> None:
    fabric = make_fabric()

    assert hop_latency_s(fabric, None, fabric.leaf) == CABLE_S + LEAF_S / 2
    assert hop_latency_s(fabric, fabric.leaf, fabric.spine) == pytest.approx(LEAF_S / 2 + CABLE_S + SPINE_S / 2, rel=1e-12)


def test_the_table_names_every_kind() -> None:
    assert list(FABRICS) == ["single_switch", "leaf_spine", "rail_optimized", "fat_tree"]
