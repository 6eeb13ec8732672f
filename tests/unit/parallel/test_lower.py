"""A whole plan as a Program: transfers, gradients, the shared embedding, the update."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import fsum

import pytest

from clustersim.parallel.lower import lower
from clustersim.parallel.stage import stage_of
from clustersim.parallel.step_settings import DataLoader
from clustersim.parallel.training_plan import Plan
from clustersim.program.program import Program
from clustersim.program.tasks import Communicate, Compute, Task, Transfer
from clustersim.workloads.operators import Recorded
from tests.rows import rows
from tests.unit.parallel.factories import (
    BERT,
    GPT,
    LLAMA,
    STRATEGY,
    buckets_of,
    chosen,
    collective,
    collectives_of,
    computes,
    kernels_of,
    layer_parameters,
    make_plan,
    tasks_of,
)

H, V = 512, 8192
ACTIVATION_BYTES = 2.0 * 256 * H
LAYER_BYTES = 4.0 * layer_parameters(GPT)
NO_OVERLAP = STRATEGY.data_parallel.changed(overlap=False, no_sync=False)


def waits_for(program: Program, task: Task) -> list[str]:
    return [program.tasks[index].action.name for index in task.after]


def order_of(program: Program, stage: int) -> list[str]:
    """Return what a stage computes, with micro-batches."""
    return [f"{task.action.name}{task.micro_batch}" if task.micro_batch >= 0 else task.action.name for task in computes(program, stage)]


def test_a_step_begins_with_the_host_and_ends_with_the_optimizer() -> None:
    program = lower(make_plan(global_batch_size=2))

    assert order_of(program, 0) == ["host", "F0", "B0", "F1", "B1", "optimizer"]


def test_stages_compute_in_the_order_of_the_schedule() -> None:
    program = lower(make_plan(pp=2, schedule="gpipe", global_batch_size=3))

    assert order_of(program, 1) == ["host", "F0", "F1", "F2", "B2", "B1", "B0", "optimizer"]


@pytest.mark.parametrize(("p", "m", "v"), [(1, 4, 1), (2, 4, 1), (4, 8, 1), (2, 4, 2), (4, 8, 4)])
def test_each_micro_batch_crosses_each_border_of_chunks_twice(p: int, m: int, v: int) -> None:
    schedule = "interleaved_1f1b" if v > 1 else "1f1b"
    plan = make_plan(pp=p, virtual_stages=v, schedule=schedule, global_batch_size=m)

    transfers = [task for task in lower(plan).tasks if isinstance(task.action, Transfer)]

    assert len(transfers) == 2 * m * (p * v - 1)


@pytest.mark.parametrize(("tp", "sequence_parallel"), [(1, False), (4, False), (4, True)])
def test_a_rank_sends_its_part_of_one_activation(tp: int, sequence_parallel: bool) -> None:
    plan = make_plan(pp=2, tp=tp, sequence_parallel=sequence_parallel, micro_batch_size=2)

    sizes = {task.action.bytes for task in lower(plan).tasks if isinstance(task.action, Transfer)}

    assert sizes == {2 * ACTIVATION_BYTES / tp}


def received(plan: Plan) -> list[list[str]]:
    """Return the blocks of the first forward and the first backward pass of each stage."""
    program = lower(plan)
    return [[task.action.blocks[0].name for task in computes(program, stage)[1:] if isinstance(task.action, Compute)] for stage in (0, 1)]


def test_parts_of_a_received_activation_are_gathered_where_it_is_needed_whole() -> None:
    first, last = received(make_plan(pp=2, tp=4, global_batch_size=1))

    assert first == ["embedding", "receive", "update"]
    assert last == ["receive", "head", "update"]


def test_sequence_parallelism_takes_the_part_as_it_comes() -> None:
    first, last = received(make_plan(pp=2, tp=4, sequence_parallel=True, global_batch_size=1))

    assert first == ["embedding", "layer", "update"]
    assert last == ["layer", "head", "update"]


def test_a_received_activation_is_gathered_in_full_by_the_tensor_parallel_group() -> None:
    program = lower(make_plan(pp=2, tp=4, global_batch_size=1))
    action = computes(program, 1)[1].action
    assert isinstance(action, Compute)

    (gather,) = collectives_of(action.blocks[0].body)

    assert (gather.op, gather.bytes, gather.group.name) == ("all_gather", ACTIVATION_BYTES, "tp of stage 1")


def test_a_backward_pass_in_pieces_gathers_what_it_receives_once() -> None:
    program = lower(make_plan(pp=2, tp=2, dp=2, global_batch_size=2, bucket_bytes=1.1 * LAYER_BYTES))

    def blocks(stage: int) -> list[list[str]]:
        backward = [task.action for task in computes(program, stage) if task.action.name == "B"]
        return [[block.name for block in action.blocks] for action in backward if isinstance(action, Compute)]

    # Beside every piece but the first a bucket is reduced.
    assert blocks(0) == [["receive", "layer"], ["layer", "beside"], ["layer", "beside"], ["layer", "embedding", "beside"]]
    assert blocks(1) == [["head", "layer"], ["layer", "beside"], ["layer", "beside"], ["layer", "beside"]]


def test_without_overlap_a_pass_waits_for_its_sends() -> None:
    waiting, overlapped = (lower(make_plan(pp=2, global_batch_size=2, overlap_p2p=overlap)) for overlap in (False, True))

    assert "F 0->1" in waits_for(waiting, computes(waiting, 0)[2])
    assert "F 0->1" not in waits_for(overlapped, computes(overlapped, 0)[2])


@pytest.mark.parametrize("changes", [{"pp": 4, "dp": 2}, {"pp": 4, "schedule": "gpipe"}, {"dp": 4, "zero_stage": 3}, {"tp": 4, "pp": 2}])
def test_every_task_follows_the_task_before_it_on_each_of_its_lanes(changes: dict[str, object]) -> None:
    program = lower(make_plan(**changes))
    lanes = dict.fromkeys(lane for task in program.tasks for lane in task.lanes)

    for lane in lanes:
        on_lane = [index for index, task in enumerate(program.tasks) if lane in task.lanes]
        assert all(before in program.tasks[after].after for before, after in pairwise(on_lane)), lane


@pytest.mark.parametrize("layers", [1, 2.5, 3, 16, 100])
def test_buckets_are_those_that_tensors_fill_and_hold_every_gradient(layers: float) -> None:
    plan = make_plan(dp=4, bucket_bytes=layers * LAYER_BYTES)

    buckets = tasks_of(plan, "gradients")

    assert [collective(task).bytes for task in buckets] == [4 * bucket.parameters for bucket in buckets_of(plan)]
    assert [collective(task).pieces for task in buckets] == [bucket.n_calls for bucket in buckets_of(plan)]
    assert fsum(collective(task).bytes for task in buckets) == pytest.approx(4 * stage_of(plan, 0).weights.total, rel=1e-12)


def test_without_no_sync_every_micro_batch_reduces_its_gradients() -> None:
    plan = make_plan(dp=4, global_batch_size=12, bucket_bytes=1e12, no_sync=False)

    assert len(tasks_of(plan, "gradients")) == 3
    assert len(tasks_of(replace(plan, strategy=plan.strategy.changed(data_parallel=NO_OVERLAP)), "gradients")) == 3


@pytest.mark.parametrize("overlap", [True, False])
def test_a_narrower_reduction_moves_fewer_bytes_and_casts_first(overlap: bool) -> None:
    wide, narrow = (
        make_plan(dp=4, global_batch_size=4, bucket_bytes=1e12, reduce_precision=precision, overlap=overlap)
        for precision in ("same", "bf16")
    )

    (as_kept,), (cast,) = (tasks_of(plan, "gradients") for plan in (wide, narrow))

    assert collective(cast).bytes == collective(as_kept).bytes / 2
    (backward,) = tasks_of(narrow, "B")
    assert isinstance(backward.action, Compute)
    assert [block.name for block in backward.action.blocks][-1] == "cast"


def test_buckets_follow_their_piece_of_the_last_backward_pass_alone() -> None:
    program = lower(make_plan(dp=4, global_batch_size=8, bucket_bytes=4 * LAYER_BYTES))
    last = [index for index, task in enumerate(program.tasks) if task.action.name == "B" and task.micro_batch == 1]

    buckets = chosen(program, "gradients")

    assert len(last) == len(buckets) == 4
    assert all(piece in bucket.after for piece, bucket in zip(last, buckets, strict=True))
    assert all(program.tasks[bucket.after[0]].micro_batch == 1 for bucket in buckets)


def test_without_overlap_all_gradients_wait_for_the_end() -> None:
    program = lower(make_plan(dp=4, overlap=False, bucket_bytes=4 * LAYER_BYTES))
    (gradients,) = chosen(program, "gradients")

    assert waits_for(program, gradients) == ["B"]
    # 16 layers, embedding and head are a little more than 4 buckets of 4 layers.
    assert collective(gradients).pieces == 5


def test_chunks_of_a_stage_reduce_their_gradients_as_they_finish() -> None:
    plan = make_plan(dp=2, pp=2, schedule="interleaved_1f1b", virtual_stages=2, bucket_bytes=1e12)
    program = lower(plan)

    buckets = chosen(program, "gradients", rank_class=0)

    assert [program.tasks[bucket.after[0]].chunk for bucket in buckets] == [1, 0]


def test_weights_are_gathered_after_the_update_in_their_own_precision() -> None:
    plan = make_plan(dp=4, zero_stage=1)
    program = lower(plan)
    (weights,) = chosen(program, "gather weights")

    assert "optimizer" in waits_for(program, weights)
    assert collective(weights).bytes == 2 * stage_of(plan, 0).weights.total


def test_a_tied_head_on_another_stage_shares_its_gradient_with_the_embedding() -> None:
    (shared,) = tasks_of(make_plan(pp=4, tp=2, dp=2), "embedding gradient")

    assert (collective(shared).op, collective(shared).bytes) == ("all_reduce", 4 * V * H / 2)
    assert rows(collective(shared).group.members) == ((0, 12), (1, 13), (2, 14), (3, 15))
    assert [lane.rank_class for lane in shared.lanes] == [0, 3]


@pytest.mark.parametrize("plan", [make_plan(), make_plan(tp=4), make_plan(LLAMA, pp=4), make_plan(replace(BERT, lm_head=False), pp=4)])
def test_nothing_is_shared_on_one_stage_or_without_a_tied_head(plan: Plan) -> None:
    assert tasks_of(plan, "embedding gradient") == []


def test_the_shared_gradient_follows_the_gradients_of_data_parallelism() -> None:
    program = lower(make_plan(pp=2, dp=2))
    (shared,) = chosen(program, "embedding gradient")

    assert sorted(set(waits_for(program, shared))) == ["B", "gradients"]
    assert {program.tasks[index].lanes[0].rank_class for index in shared.after} == {0, 1}


def test_the_shared_gradient_waits_for_both_ends_of_the_model() -> None:
    program = lower(make_plan(pp=2))
    (shared,) = chosen(program, "embedding gradient")

    assert [(program.tasks[index].action.name, program.tasks[index].lanes[0].rank_class) for index in shared.after] == [("B", 0), ("B", 1)]


def test_the_norm_joins_all_ranks_of_each_replica_of_the_model() -> None:
    (norm,) = tasks_of(make_plan(pp=2, tp=2, dp=2), "gradient norm")

    assert rows(collective(norm).group.members) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert (collective(norm).bytes, collective(norm).group.dimension) == (4.0, "pp")
    assert [lane.rank_class for lane in norm.lanes] == [0, 1]


def test_a_model_on_one_rank_needs_no_norm_from_others() -> None:
    assert tasks_of(make_plan(dp=4), "gradient norm") == []
    (norm,) = tasks_of(make_plan(tp=4), "gradient norm")
    assert collective(norm).group.dimension == "tp"


def test_every_update_waits_for_the_norm() -> None:
    program = lower(make_plan(pp=4, dp=2))

    for update in chosen(program, "optimizer"):
        assert "gradient norm" in waits_for(program, update)


def test_a_lone_replica_s_update_waits_for_its_last_bucket() -> None:
    program = lower(make_plan(dp=4, bucket_bytes=4 * LAYER_BYTES))
    (update,) = chosen(program, "optimizer")

    assert program.tasks.index(chosen(program, "gradients")[-1]) in update.after


def test_equal_passes_are_one_object_so_that_they_are_priced_once() -> None:
    program = lower(make_plan(pp=4))
    passes = [task.action for task in computes(program, 1) if task.action.name in ("F", "B")]

    assert len(passes) == 32
    assert len({id(action) for action in passes}) == 2


def parted(*parts: tuple[int, ...], **changes: object) -> Program:
    return lower(make_plan(**changes), parts)


def test_parts_compute_apart_and_reduce_together() -> None:
    program = parted((0, 1, 3), (2,), dp=4, global_batch_size=4, bucket_bytes=1e12)

    (reduction,) = chosen(program, "gradients")

    assert [each.name for each in program.rank_classes] == ["ranks 0-1, 3", "rank 2"]
    assert [lane.rank_class for lane in reduction.lanes] == [0, 1]
    assert [program.tasks[index].lanes[0].rank_class for index in reduction.after] == [0, 1]
    assert len(chosen(program, "F", rank_class=0)) == len(chosen(program, "F", rank_class=1)) == 1


def test_parts_of_a_pipeline_send_to_themselves_alone() -> None:
    program = parted((0,), (1,), pp=2, dp=2, global_batch_size=2)

    pairs = {rows(task.action.pairs) for task in program.tasks if isinstance(task.action, Transfer)}

    assert pairs == {((0, 2),), ((1, 3),), ((2, 0),), ((3, 1),)}


def test_groups_and_transfers_of_different_parts_never_have_the_same_name() -> None:
    program = parted((0, 2), (1,), dp=3, tp=2, pp=2, global_batch_size=3)
    members: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
    for task in program.tasks:
        if isinstance(task.action, Transfer):
            members.setdefault(task.action.name, set()).add(rows(task.action.pairs))
        found = [task.action.collective] if isinstance(task.action, Communicate) else []
        if isinstance(task.action, Compute):
            found += [each for block in task.action.blocks for each in collectives_of(block.body)]
        for each in found:
            members.setdefault(each.group.name, set()).add(rows(each.group.members))

    assert all(len(found) == 1 for found in members.values())


def test_one_part_gives_the_program_of_like_replicas() -> None:
    assert repr(parted((0, 1), dp=2, pp=2, tp=2)) == repr(lower(make_plan(dp=2, pp=2, tp=2)))


def test_the_loader_reads_the_next_batch_beside_the_step() -> None:
    program = lower(make_plan(dp=2, pp=2, tp=2, global_batch_size=16, data_loader=DataLoader.model_validate({"rate": "4 samples/s"})))

    (loading,) = chosen(program, "load")

    assert isinstance(loading.action, Compute)
    assert (loading.lanes[0].rank_class, loading.lanes[0].stream, loading.after) == (0, "loader", ())
    assert kernels_of(loading.action.blocks) == [Recorded(16 / (0.5 * 8))]


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_hybrid_sharding_gathers_weights_inside_a_shard_group(zero_stage: int) -> None:
    plan = make_plan(dp=4, zero_stage=zero_stage, shard_degree=2)

    (weights,) = tasks_of(plan, "gather weights")

    assert rows(collective(weights).group.members) == ((0, 1), (2, 3))
