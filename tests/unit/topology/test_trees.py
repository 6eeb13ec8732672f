from __future__ import annotations

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster import TIERS
from clustersim.topology.scale_out import Below, hop_latency_s
from clustersim.topology.torus import torus
from clustersim.topology.trees import fat_tree, leaf_spine, rail_optimized, single_switch
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_BYTES_PER_S, SPINE_S, make_fabric, ranks


def hanging(n_places: int, n_adapters: int = 8) -> Below:
    return Below(n_places=n_places, n_adapters=n_adapters, adapter_bandwidth_bytes_per_s=np.full(n_places, NIC_BYTES_PER_S))


def test_a_single_switch_is_one_leaf() -> None:
    switch = single_switch(make_fabric("single_switch"), hanging(100))

    assert switch.n_leaves == 1
    assert len(switch.tier_index) == 0
    np.testing.assert_array_equal(switch.leaf_of(ranks(0, 50, 99), ranks(0, 3, 7)), 0)


def test_a_plain_leaf_holds_all_adapters_of_its_nodes() -> None:
    tree = leaf_spine(make_fabric("leaf_spine", nodes_per_leaf=4), hanging(10))

    assert tree.n_leaves == 3
    np.testing.assert_array_equal(tree.leaf_of(ranks(0, 3, 3, 4, 9), ranks(0, 0, 7, 7, 1)), [0, 0, 0, 1, 2])


def test_a_rail_has_a_leaf_in_every_unit() -> None:
    tree = rail_optimized(make_fabric(nodes_per_leaf=4), hanging(10))

    assert tree.n_leaves == 24
    np.testing.assert_array_equal(tree.leaf_of(ranks(0, 3, 3, 4, 9), ranks(0, 0, 7, 7, 1)), [0, 0, 7, 15, 17])


def test_pods_hold_their_leaves_in_order() -> None:
    tree = fat_tree(make_fabric("fat_tree", nodes_per_leaf=4, leaves_per_pod=2), hanging(18))

    assert tree.n_leaves == 5
    assert [tree.ends(2 * leaf) for leaf in range(5)] == [(f"leaf{leaf}", f"pod{leaf // 2}/spines") for leaf in range(5)]


@pytest.mark.parametrize("topology", ["leaf_spine", "rail_optimized"])
def test_pods_give_every_fabric_with_leaves_a_core(topology: str) -> None:
    build = leaf_spine if topology == "leaf_spine" else rail_optimized

    flat, tall = (build(make_fabric(nodes_per_leaf=1, leaves_per_pod=per_pod), hanging(16)) for per_pod in (0, 8))

    assert TIERS.index("spine") not in flat.tier_index
    assert TIERS.index("spine") in tall.tier_index


def mixed(*bandwidths_bytes_per_s: float) -> Below:
    return Below(n_places=len(bandwidths_bytes_per_s), n_adapters=8, adapter_bandwidth_bytes_per_s=np.array(bandwidths_bytes_per_s))


def test_a_leaf_climbs_with_what_really_hangs_below_it() -> None:
    tree = leaf_spine(make_fabric("leaf_spine", nodes_per_leaf=2), mixed(8e9, 8e9, 8e9, 2e9, 2e9, 2e9))

    assert tree.bandwidth_bytes_per_s.tolist() == [16 * 8e9] * 2 + [16 * 5e9] * 2 + [16 * 2e9] * 2


def test_nodes_that_a_leaf_lacks_are_taken_to_be_like_its_last() -> None:
    tree = leaf_spine(make_fabric("leaf_spine", nodes_per_leaf=4), mixed(8e9, 8e9, 8e9, 8e9, 8e9, 2e9))

    assert tree.bandwidth_bytes_per_s.tolist() == pytest.approx([32 * 8e9] * 2 + [8 * (8e9 + 3 * 2e9)] * 2, rel=1e-12)


def test_a_pod_climbs_with_what_its_leaves_do() -> None:
    tree = fat_tree(make_fabric("fat_tree", nodes_per_leaf=1, leaves_per_pod=2), mixed(8e9, 2e9, 2e9))

    pods = [tree.bandwidth_bytes_per_s[link] for link in range(6, 10)]
    assert pods == pytest.approx([8 * 10e9] * 2 + [8 * 4e9] * 2, rel=1e-12)


def test_a_link_of_a_torus_is_as_wide_as_the_narrower_of_its_nodes() -> None:
    ring = torus(make_fabric("torus", dimensions=(3,)), mixed(8e9, 8e9, 2e9))
    widths = {ring.ends(link): float(width) for link, width in enumerate(ring.bandwidth_bytes_per_s)}

    assert widths["router0", "router1"] == widths["router1", "router0"] == 8 * 8e9 / 2
    assert widths["router1", "router2"] == widths["router0", "router2"] == 8 * 2e9 / 2


def test_a_fat_tree_without_pods_is_refused() -> None:
    with pytest.raises(DomainError, match="three tiers") as caught:
        fat_tree(make_fabric("fat_tree"), hanging(16))

    assert caught.value.path == ("fabric", "leaves_per_pod")


def test_a_cable_carries_half_of_the_switch_at_each_end() -> None:
    fabric = make_fabric()

    assert hop_latency_s(None, fabric.leaf, CABLE_S) == CABLE_S + LEAF_S / 2
    assert hop_latency_s(fabric.leaf, fabric.spine, CABLE_S) == pytest.approx(LEAF_S / 2 + CABLE_S + SPINE_S / 2, rel=1e-12)
