"""Shard groups, copies, and who of uneven replicas takes part."""

from __future__ import annotations

import pytest

from clustersim.parallel.division import divided, place
from clustersim.parallel.sharding_groups import Holders, expert_grid, expert_replicas, replicas, shard_scopes
from tests.rows import rows
from tests.unit.parallel.factories import make_plan


def holders(degree: int, stage: int = 0, **changes: object) -> Holders:
    """Return who holds the same parameters of a stage of a plan that shards its optimizer states over some ranks."""
    strategy = make_plan(zero_stage=1, shard_degree=degree, **changes).strategy
    return replicas(strategy, place(strategy), stage)


def test_shards_of_all_replicas_are_one_group() -> None:
    whole = holders(4, dp=4)

    assert rows(whole.shards().members) == rows(whole.group().members) == ((0, 1, 2, 3),)
    assert rows(whole.copies().members) == ((0,), (1,), (2,), (3,))


def test_a_degree_of_one_leaves_copies_only() -> None:
    alone = holders(1, dp=4)

    assert rows(alone.shards().members) == ((0,), (1,), (2,), (3,))
    assert rows(alone.copies().members) == ((0, 1, 2, 3),)


def test_consecutive_replicas_share_so_that_a_group_stays_in_a_node() -> None:
    some = holders(4, dp=8, tp=2)

    # Nodes of eight ranks: tensor parallelism takes pairs, and four replicas fill a node.
    assert {tuple(rank // 8 for rank in members) for members in rows(some.shards().members)} == {(0,) * 4, (1,) * 4}
    assert {tuple(rank // 8 for rank in members) for members in rows(some.copies().members)} == {(0, 1)}


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_every_rank_is_in_one_group_of_each_kind_and_a_pair_meets_in_at_most_one(degree: int) -> None:
    some = holders(degree, stage=1, dp=8, tp=2, pp=2)
    shards, copies = some.shards(), some.copies()

    for group in (shards, copies):
        assert sorted(rank for members in rows(group.members) for rank in members) == list(range(16, 32))
    assert (shards.size, copies.size) == (degree, 8 // degree)
    assert all(len(set(one) & set(other)) == 1 for one in rows(shards.members) for other in rows(copies.members) if set(one) & set(other))


def test_ranks_of_context_parallelism_hold_the_same_parameters() -> None:
    strategy = make_plan(dp=2, cp=2, tp=2).strategy

    assert rows(replicas(strategy, place(strategy), 0).lines) == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_experts_are_spread_over_replicas_that_hold_everything_else_together() -> None:
    strategy = make_plan(dp=4, tp=2, ep=2).strategy
    mesh = place(strategy)

    assert expert_grid(strategy, mesh, 0).tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert rows(expert_replicas(strategy, mesh, 0).lines) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert rows(replicas(strategy, mesh, 0).lines) == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_experts_that_are_not_divided_fold_tensor_parallel_ranks_in() -> None:
    strategy = make_plan(dp=2, tp=2, ep=4, etp=1, pp=2).strategy

    assert expert_grid(strategy, place(strategy), 1).tolist() == [[[4], [5], [6], [7]]]


def test_a_placement_can_have_replicas_of_experts_nearer_than_other_experts() -> None:
    strategy = make_plan(dp=4, ep=2, placement=("tp", "cp", "dp", "ep", "pp")).strategy

    assert expert_grid(strategy, place(strategy), 0).tolist() == [[[0], [2]], [[1], [3]]]


def test_shards_of_experts_are_spread_over_as_many_ranks_as_hold_them() -> None:
    strategy = make_plan(dp=8, ep=2, zero_stage=1).strategy

    assert (strategy.sharding.degree, strategy.sharding.expert_degree) == (8, 4)
    assert rows(expert_replicas(strategy, place(strategy), 0).shards().members) == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_one_part_is_one_scope() -> None:
    (scope,) = shard_scopes(divided(place(make_plan(dp=4).strategy)), holders(2, dp=4))

    assert (scope.parts, rows(scope.group.members)) == ((0,), ((0, 1), (2, 3)))


def test_parts_with_shard_groups_of_their_own_are_scopes_of_their_own() -> None:
    division = divided(place(make_plan(dp=8).strategy), [(0, 1, 4, 5), (2, 3, 6, 7)])
    slow, fast = shard_scopes(division, holders(2, dp=8))

    assert (slow.parts, rows(slow.group.members)) == ((0,), ((0, 1), (4, 5)))
    assert (fast.parts, rows(fast.group.members)) == ((1,), ((2, 3), (6, 7)))
    assert [(lane.rank_class, lane.stream) for lane in fast.lanes("dp")] == [(1, "dp")]


def test_a_shard_group_over_several_parts_holds_all_of_them_up() -> None:
    division = divided(place(make_plan(dp=4).strategy), [(0, 1, 2), (3,)])
    (scope,) = shard_scopes(division, holders(2, dp=4))

    assert (scope.parts, rows(scope.group.members)) == ((0, 1), ((0, 1), (2, 3)))
    assert [lane.rank_class for lane in scope.lanes("dp")] == [0, 1]
