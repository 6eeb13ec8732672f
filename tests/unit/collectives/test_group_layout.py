from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.group_layout import chains, closed_rings, largest_block, layouts, most_rails
from clustersim.collectives.pattern import grouping
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.topology.factories import make_node

CLUSTER = build_cluster(make_node(), 3)


def groups(*members: tuple[int, ...]) -> np.ndarray:
    return np.array(members, dtype=np.int64)


def test_groups_that_lie_evenly_have_one_layout() -> None:
    found = layouts(grouping(CLUSTER, groups((0, 1, 8, 9), (2, 5, 18, 20))))

    assert [layout.sizes.tolist() for layout in found] == [[2, 2]]
    assert (most_rails(found), largest_block(found)) == (2, 2)


def test_groups_are_sorted_by_how_they_lie() -> None:
    found = layouts(grouping(CLUSTER, groups((0, 1, 2, 8), (3, 4, 9, 10), (5, 6, 7, 16))))

    assert [layout.sizes.tolist() for layout in found] == [[3, 1], [2, 2]]
    assert [layout.members.tolist() for layout in found] == [[[0, 1, 2, 8], [5, 6, 7, 16]], [[3, 4, 9, 10]]]
    assert [layout.n_rails for layout in found] == [1, 2]
    assert (most_rails(found), largest_block(found)) == (2, 3)


def test_the_first_members_of_each_domain_stand_for_the_rails() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8, 9))))

    assert layout.n_domains == 2
    assert layout.heads().tolist() == [[[0, 1], [8, 9]]]


def test_blocks_of_a_size_come_together() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8, 9, 16, 17))))

    assert [block.tolist() for block in layout.blocks()] == [[[8, 9], [16, 17]], [[0, 1, 2]]]


def test_closed_rings_use_each_edge_once_for_every_member() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((3, 4, 7))))

    rings = closed_rings(CLUSTER, layout)

    assert list(zip(rings.sources.tolist(), rings.destinations.tolist(), rings.counts.tolist(), strict=True)) == [
        (3, 4, 3.0),
        (4, 7, 3.0),
        (7, 3, 3.0),
    ]


def test_a_chain_leaves_out_the_edge_back_to_its_head() -> None:
    (layout,) = layouts(grouping(CLUSTER, groups((0, 1, 2, 8))))

    links = chains(CLUSTER, layout)

    # One rail: 0, 1, 2 in the first domain, and nothing to pass on in the second.
    assert list(zip(links.sources.tolist(), links.destinations.tolist(), links.counts.tolist(), strict=True)) == [(0, 1, 1.0), (1, 2, 1.0)]


@pytest.mark.parametrize("share", [2, 3, 8])
def test_chains_from_all_members_use_each_edge_once_less_than_there_are_members(share: int) -> None:
    members = tuple(node * 8 + index for node in range(2) for index in range(share))
    (layout,) = layouts(grouping(CLUSTER, groups(members)))

    assert set(chains(CLUSTER, layout).counts.tolist()) == {share - 1.0}
