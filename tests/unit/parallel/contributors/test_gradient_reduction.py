"""Buckets as they are reduced: by which collective, among whom, on which streams."""

from __future__ import annotations

from dataclasses import replace

from clustersim.parallel.contributors.contributor import Step
from clustersim.parallel.contributors.gradient_reduction import BucketReduction
from clustersim.parallel.division import Division, divided, place
from clustersim.parallel.gradients import COPY_STREAM, GRADIENT_STREAM, Bucket
from clustersim.parallel.stage import stages_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Collective, Communicate, Compute
from tests.rows import rows
from tests.unit.parallel.factories import make_plan


def reduced(plan: Plan, division: Division, *buckets: Bucket) -> list[tuple[str, Collective, tuple[tuple[int, str], ...]]]:
    """Return name, collective and lanes of what reduces some buckets."""
    step = Step(stages=stages_of(plan), n_micro_batches=plan.n_micro_batches, division=division)
    for lane in division.lanes(0):
        step.builder.add(("B", lane.rank_class), Compute(name="B", phase="backward", blocks=()), [lane])
    reduction = BucketReduction(step, 0)
    after = [("B", lane.rank_class) for lane in division.lanes(0)]
    for number, bucket in enumerate(buckets):
        reduction.add((number,), bucket, after=after)
    return [
        (task.action.name, task.action.collective, tuple((lane.rank_class, lane.stream) for lane in task.lanes))
        for task in step.builder.build(()).tasks if isinstance(task.action, Communicate)
    ]  # fmt: skip


def test_a_bucket_is_one_collective_of_all_parts() -> None:
    plan = make_plan(dp=4)
    ((name, collective, lanes),) = reduced(
        plan, divided(place(plan.strategy), [(0, 1), (2, 3)]), Bucket(parameters=10.0, layer=0, n_calls=3)
    )

    assert (name, collective.op, collective.bytes, collective.pieces) == ("gradients", "all_reduce", 40.0, 3)
    assert lanes == ((0, GRADIENT_STREAM), (1, GRADIENT_STREAM))


def test_equal_buckets_share_one_action() -> None:
    plan = make_plan(dp=4)
    bucket = Bucket(parameters=10.0, layer=0)
    tasks = reduced(plan, divided(place(plan.strategy)), bucket, bucket, replace(bucket, parameters=11.0))

    assert tasks[0][1] is tasks[1][1] is not tasks[2][1]


def test_shards_are_reduced_inside_their_group_and_then_between_copies() -> None:
    plan = make_plan(dp=4, zero_stage=2, shard_degree=2)
    scattered, added = reduced(plan, divided(place(plan.strategy)), Bucket(parameters=10.0, layer=0))

    assert (scattered[1].op, rows(scattered[1].group.members), scattered[1].bytes) == ("reduce_scatter", ((0, 1), (2, 3)), 40.0)
    assert (added[1].op, rows(added[1].group.members), added[1].bytes) == ("all_reduce", ((0, 2), (1, 3)), 20.0)
    assert (scattered[2], added[2]) == (((0, GRADIENT_STREAM),), ((0, COPY_STREAM),))


def test_shard_groups_of_one_part_do_not_wait_for_another_part() -> None:
    plan = make_plan(dp=4, zero_stage=3, shard_degree=2)
    *scattered, added = reduced(plan, divided(place(plan.strategy), [(0, 1), (2, 3)]), Bucket(parameters=10.0, layer=0))

    assert [(rows(each[1].group.members), each[2]) for each in scattered] == [(((0, 1),), ((0, "dp"),)), (((2, 3),), ((1, "dp"),))]
    assert added[2] == ((0, COPY_STREAM), (1, COPY_STREAM))


def test_optimizer_states_that_some_ranks_share_leave_the_sum_whole() -> None:
    plan = make_plan(dp=4, zero_stage=1, shard_degree=2)
    ((_, collective, _),) = reduced(plan, divided(place(plan.strategy)), Bucket(parameters=10.0, layer=0))

    assert (collective.op, rows(collective.group.members)) == ("all_reduce", ((0, 1, 2, 3),))
