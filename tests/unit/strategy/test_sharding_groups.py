"""Shard groups, copies, and who of uneven replicas takes part."""

from __future__ import annotations

import pytest

from clustersim.strategy.division import divided
from clustersim.strategy.mesh import place
from clustersim.strategy.sharding_groups import copy_group, shard_group, shard_scopes
from tests.unit.strategy.factories import make_plan


def test_shards_of_all_replicas_are_one_group() -> None:
    mesh = place(make_plan(dp=4).strategy)

    assert shard_group(mesh, 0, 4).members == mesh.groups("dp", 0) == ((0, 1, 2, 3),)
    assert copy_group(mesh, 0, 4).members == ((0,), (1,), (2,), (3,))


def test_a_degree_of_one_leaves_copies_only() -> None:
    mesh = place(make_plan(dp=4).strategy)

    assert shard_group(mesh, 0, 1).members == ((0,), (1,), (2,), (3,))
    assert copy_group(mesh, 0, 1).members == ((0, 1, 2, 3),)


def test_consecutive_replicas_share_so_that_a_group_stays_in_a_node() -> None:
    mesh = place(make_plan(dp=8, tp=2).strategy)

    # Nodes of eight ranks: tensor parallelism takes pairs, and four replicas fill a node.
    assert {tuple(rank // 8 for rank in members) for members in shard_group(mesh, 0, 4).members} == {(0,) * 4, (1,) * 4}
    assert {tuple(rank // 8 for rank in members) for members in copy_group(mesh, 0, 4).members} == {(0, 1)}


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_every_rank_is_in_one_group_of_each_kind_and_a_pair_meets_in_at_most_one(degree: int) -> None:
    mesh = place(make_plan(dp=8, tp=2, pp=2).strategy)
    shards, copies = shard_group(mesh, 1, degree), copy_group(mesh, 1, degree)

    for group in (shards, copies):
        assert sorted(rank for members in group.members for rank in members) == list(range(16, 32))
    assert (shards.size, copies.size) == (degree, 8 // degree)
    assert all(len(set(one) & set(other)) == 1 for one in shards.members for other in copies.members if set(one) & set(other))


def test_one_part_is_one_scope() -> None:
    (scope,) = shard_scopes(divided(place(make_plan(dp=4).strategy)), 0, 2)

    assert (scope.parts, scope.group.members) == ((0,), ((0, 1), (2, 3)))


def test_parts_with_shard_groups_of_their_own_are_scopes_of_their_own() -> None:
    division = divided(place(make_plan(dp=8).strategy), [(0, 1, 4, 5), (2, 3, 6, 7)])
    slow, fast = shard_scopes(division, 0, 2)

    assert (slow.parts, slow.group.members) == ((0,), ((0, 1), (4, 5)))
    assert (fast.parts, fast.group.members) == ((1,), ((2, 3), (6, 7)))
    assert [(lane.rank_class, lane.stream) for lane in fast.lanes("dp")] == [(1, "dp")]


def test_a_shard_group_over_several_parts_holds_all_of_them_up() -> None:
    division = divided(place(make_plan(dp=4).strategy), [(0, 1, 2), (3,)])
    (scope,) = shard_scopes(division, 0, 2)

    assert (scope.parts, scope.group.members) == ((0, 1), ((0, 1), (2, 3)))
    assert [lane.rank_class for lane in scope.lanes("dp")] == [0, 1]
