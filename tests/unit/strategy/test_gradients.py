"""Buckets, reductions and the optimizer's traffic."""

from __future__ import annotations

import pytest

from clustersim.program.tasks import Communicate, Compute
from clustersim.strategy.gradients import (
    gradient_collective,
    gradient_group,
    gradient_operations,
    layer_gradient_bytes,
    layer_slices,
    layers_per_bucket,
    optimizer_update,
)
from clustersim.strategy.lower import lower
from clustersim.strategy.mesh import place
from clustersim.strategy.plan import Plan
from clustersim.workload.operators import Stream
from clustersim.workload.parameters import layer_parameters
from tests.unit.strategy.factories import GPT, make_plan

LAYER_BYTES = 4.0 * layer_parameters(GPT)


def update_bytes(plan: Plan, parameters: float = 1000.0) -> float:
    action = optimizer_update(plan, parameters)
    (work,) = action.blocks[0].body
    return sum(kernel.traffic_bytes for kernel in work.kernels)  # pyright: ignore[reportAttributeAccessIssue] - it is Work


def test_gradients_are_reduced_among_the_replicas_of_a_stage() -> None:
    plan = make_plan(dp=2, tp=2, pp=2)
    group = gradient_group(place(plan.strategy), 1)

    assert (group.name, group.dimension, group.size) == ("dp of stage 1", "dp", 2)
    assert group.members == ((4, 6), (5, 7))


def test_a_layer_has_a_gradient_for_every_parameter() -> None:
    assert layer_gradient_bytes(make_plan()) == LAYER_BYTES
    assert layer_gradient_bytes(make_plan(gradient_precision="same")) == LAYER_BYTES / 2


@pytest.mark.parametrize(("layers", "fit"), [(0.5, 1), (1.0, 1), (2.5, 2), (3.0, 3)])
def test_a_bucket_holds_whole_layers_and_at_least_one(layers: float, fit: int) -> None:
    assert layers_per_bucket(make_plan(bucket_bytes=layers * LAYER_BYTES)) == fit


@pytest.mark.parametrize(
    ("layers", "slices"),
    [
        (100.0, [(0, 16)]),
        (8.0, [(0, 8), (8, 16)]),
        (5.0, [(0, 5), (5, 10), (10, 16)]),
        (0.5, [(layer, layer + 1) for layer in range(16)]),
    ],
)
def test_slices_are_even_and_of_at_least_a_bucket(layers: float, slices: list[tuple[int, int]]) -> None:
    assert list(layer_slices(make_plan(bucket_bytes=layers * LAYER_BYTES), 16)) == slices


@pytest.mark.parametrize(("zero_stage", "op"), [(0, "all_reduce"), (1, "reduce_scatter"), (2, "reduce_scatter"), (3, "reduce_scatter")])
def test_sharded_optimizer_states_need_only_their_part_of_the_sum(zero_stage: int, op: str) -> None:
    plan = make_plan(dp=4, zero_stage=zero_stage)

    assert gradient_collective(plan, gradient_group(place(plan.strategy), 0), 1e6).op == op


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_the_algorithm_of_the_plan_reaches_everything_it_performs(zero_stage: int) -> None:
    plan = make_plan(dp=4, zero_stage=zero_stage, algorithm="nvls")

    collectives = [task.action.collective for task in lower(plan).tasks if isinstance(task.action, Communicate)]
    assert {each.algorithm for each in collectives} == {"nvls"}
    assert {each.op for each in collectives} == set(gradient_operations(plan.strategy))


def test_the_gradient_of_a_shared_embedding_and_the_norm_are_left_to_the_library() -> None:
    program = lower(make_plan(pp=2, tp=2, dp=2, algorithm="tree"))

    assert {
        task.action.collective.algorithm for task in program.tasks
        if isinstance(task.action, Communicate) and task.action.name in ("embedding gradient", "gradient norm")
    } == {"auto"}  # fmt: skip


@pytest.mark.parametrize(("size_bytes", "pieces"), [(1.0, 1), (10e6, 1), (25e6, 1), (26e6, 2), (100e6, 4)])
def test_more_than_a_bucket_goes_in_pieces(size_bytes: float, pieces: int) -> None:
    plan = make_plan(dp=4, bucket_bytes=25e6)
    collective = gradient_collective(plan, gradient_group(place(plan.strategy), 0), size_bytes)

    assert (collective.pieces, collective.bytes) == (pieces, size_bytes)


def test_the_update_is_one_action_of_the_optimizer_s_kind() -> None:
    action = optimizer_update(make_plan(), 1000.0)

    assert isinstance(action, Compute)
    assert action.phase == "optimizer"
    assert update_bytes(make_plan()) > 0


@pytest.mark.parametrize(
    ("precision", "optimizer", "size"),
    [
        # Norm 4, clip 8, update, zero 4; where weights are narrow, read the master weight 4 and write it in 16 bits 2.
        ("fp32", "sgd", 4 + 8 + 12 + 4),
        ("fp32", "momentum", 4 + 8 + 20 + 4),
        ("fp32", "adam", 4 + 8 + 28 + 4),
        ("bf16", "adam", 4 + 8 + 28 + 4 + 4 + 2),
        ("fp16", "adam", 4 + 8 + 28 + 4 + 4 + 2 + 8),  # the loss scale is taken out
    ],
)
def test_each_parameter_moves_so_many_bytes(precision: str, optimizer: str, size: float) -> None:
    assert update_bytes(make_plan(precision=precision, optimizer=optimizer)) == 1000 * size


def test_a_shard_is_updated_by_its_rank_alone_and_all_gradients_are_zeroed() -> None:
    whole, shard = update_bytes(make_plan(dp=4)), update_bytes(make_plan(dp=4, zero_stage=1))

    assert shard - 4000 == (whole - 4000) / 4


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_sharded_gradients_are_zeroed_where_they_are(zero_stage: int) -> None:
    assert update_bytes(make_plan(dp=4, zero_stage=zero_stage)) == update_bytes(make_plan(dp=4)) / 4


def test_replicas_do_not_share_the_update_without_zero() -> None:
    assert update_bytes(make_plan(dp=4)) == update_bytes(make_plan())


def test_the_update_is_bound_by_memory() -> None:
    (work,) = optimizer_update(make_plan(), 1000.0).blocks[0].body

    assert [type(kernel) for kernel in work.kernels] == [Stream]  # pyright: ignore[reportAttributeAccessIssue] - it is Work
