"""Buckets, and how they are reduced."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.parallel.division import place
from clustersim.parallel.gradients import (
    WeightAndBias,
    cast_blocks,
    chunk_tensors,
    copies_gradients,
    gradient_buckets,
    gradient_operations,
    layer_slices,
    moved_into_bucket_bytes,
    n_buckets,
)
from clustersim.parallel.lower import lower
from clustersim.parallel.shard import numerics
from clustersim.parallel.sharding_groups import replicas
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import model_chunks
from clustersim.program.tasks import Communicate
from clustersim.workloads.kinds.call import Layer
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from tests.rows import rows
from tests.unit.parallel.factories import GPT, LLAMA, buckets_of, layer_parameters, local_of, make_plan

LAYER = float(layer_parameters(GPT))
LAYER_BYTES = 4.0 * LAYER


def test_gradients_are_reduced_among_the_replicas_of_a_stage() -> None:
    plan = make_plan(dp=2, tp=2, pp=2)
    group = replicas(plan.strategy, place(plan.strategy), 1).group()

    assert (group.name, group.dimension, group.size) == ("dp of stage 1", "dp", 2)
    assert rows(group.members) == ((4, 6), (5, 7))


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
    assert list(layer_slices(local_of(make_plan()), layers * LAYER_BYTES)) == slices


def test_slices_of_unlike_layers_are_filled_from_the_last_layer_on() -> None:
    sizes = (1, 2, 3, 4, 100, 1, 1)  # in thousands of parameters
    layers: tuple[Layer, ...] = tuple(LinearLayer(input=(1,), features=1000 * size, bias=False) for size in sizes)
    model = Layered(name="unlike", input=(1,), tokens_per_sample=1, layers=layers)
    plan = replace(make_plan(), model=model)

    assert list(layer_slices(local_of(plan), 4.0 * 5000)) == [(0, 2), (2, 4), (4, 7)]


@pytest.mark.parametrize(("size_bytes", "count"), [(1.0, 1), (25e6, 1), (26e6, 2), (100e6, 4)])
def test_so_many_bytes_fill_so_many_buckets(size_bytes: float, count: int) -> None:
    assert n_buckets(make_plan(bucket_bytes=25e6).strategy, size_bytes) == count


def test_tensors_stand_in_the_order_of_the_forward_pass_with_the_ends_at_the_outer_layers() -> None:
    plan = make_plan(LLAMA)
    tensors = chunk_tensors(local_of(plan), stage_of(plan, 0).chunks[0])

    assert [tensor.layer for tensor in tensors] == sorted(tensor.layer for tensor in tensors)
    assert tensors[0] == WeightAndBias(layer=0, parameters=LLAMA.vocab_size * LLAMA.hidden_size)
    assert tensors[-1] == WeightAndBias(layer=15, parameters=LLAMA.vocab_size * LLAMA.hidden_size)


def test_a_tied_head_has_no_tensor_where_the_embedding_is() -> None:
    with_embedding, alone = make_plan(), make_plan(pp=4)

    assert chunk_tensors(local_of(with_embedding), stage_of(with_embedding, 0).chunks[0])[-1].parameters == 2 * GPT.hidden_size
    assert chunk_tensors(local_of(alone), stage_of(alone, 3).chunks[0])[-1].parameters == GPT.vocab_size * GPT.hidden_size


@pytest.mark.parametrize("pp", [1, 4])
def test_buckets_go_down_to_the_first_layer_of_their_chunk(pp: int) -> None:
    plan = make_plan(dp=2, pp=pp)

    for chunks in model_chunks(plan.strategy, plan.model.n_layers):
        layers = [bucket.layer for bucket in gradient_buckets(local_of(plan), plan.strategy.data_parallel, chunks[0])]
        assert layers == sorted(set(layers), reverse=True)
        assert layers[-1] == 0


def test_the_tensor_that_fills_a_bucket_closes_it() -> None:
    # Of 12 h^2 numbers of a layer, 6 fill a bucket, and 4 + 4, then 1 + 3 + 4, then 4 + 1 + 3 come in turn: 8 each, three in two layers.
    inner = buckets_of(make_plan(dp=2, bucket_bytes=0.5 * LAYER_BYTES))[1:-1]

    assert [one.n_calls + other.n_calls for one, other in pairwise(inner)] == [3] * (len(inner) - 1)
    assert [bucket.parameters / bucket.n_calls / LAYER for bucket in inner] == pytest.approx([2 / 3] * len(inner), rel=1e-3)


def test_a_huge_tensor_is_one_bucket_and_is_not_cut() -> None:
    plan = make_plan(dp=2, bucket_bytes=1.0)
    first, *_ = buckets_of(plan)

    # Final normalisation, then a call for each of the six operations of the last layer that have parameters.
    assert (first.layer, first.n_calls, first.parameters) == (15, 7, LAYER + 2 * GPT.hidden_size)


def test_the_first_bucket_may_be_smaller() -> None:
    whole, early = (buckets_of(make_plan(dp=2, first_bucket_bytes=size)) for size in (None, 1e3))

    assert early[0].layer > whole[0].layer
    assert early[0].parameters == 2 * GPT.hidden_size  # final normalisation alone is 4 KB


def test_a_layer_that_is_larger_than_the_model_s_rest_has_its_own_bucket() -> None:
    # As VGG-16, whose first dense layer holds three quarters of all numbers.
    sizes = (16, 32, 2048, 16, 8)
    layers: tuple[Layer, ...] = tuple(LinearLayer(input=(a,), features=b, bias=False) for a, b in pairwise(sizes))
    model = Layered(name="wide", input=(16,), tokens_per_sample=1, layers=layers)
    plan = replace(make_plan(dp=2, bucket_bytes=4 * 1024.0), model=model)
    buckets = buckets_of(plan)

    assert [(bucket.layer, bucket.parameters) for bucket in buckets] == [(2, 16 * 8 + 2048 * 16), (1, 32 * 2048), (0, 16 * 32)]


@pytest.mark.parametrize(
    ("zero_stage", "shard_degree", "ops"),
    [
        (0, None, ("all_reduce",)),
        (1, None, ("reduce_scatter", "all_gather")),
        (2, None, ("reduce_scatter", "all_gather")),
        (3, None, ("reduce_scatter", "all_gather")),
        (1, 2, ("all_reduce", "all_gather")),
        (2, 2, ("reduce_scatter", "all_reduce", "all_gather")),
        (3, 2, ("reduce_scatter", "all_reduce", "all_gather")),
    ],
)
def test_sharding_decides_what_is_performed(zero_stage: int, shard_degree: int | None, ops: tuple[str, ...]) -> None:
    strategy = make_plan(dp=4, zero_stage=zero_stage, shard_degree=shard_degree, no_sync=zero_stage < 2).strategy

    assert gradient_operations(strategy) == ops


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("shard_degree", [None, 2])
def test_the_algorithm_of_the_plan_reaches_everything_it_performs(zero_stage: int, shard_degree: int | None) -> None:
    plan = make_plan(dp=4, zero_stage=zero_stage, shard_degree=shard_degree, algorithm="nvls")

    collectives = [task.action.collective for task in lower(plan).tasks if isinstance(task.action, Communicate)]
    assert {each.algorithm for each in collectives} == {"nvls"}
    assert {each.op for each in collectives} == set(gradient_operations(plan.strategy))


def test_the_gradient_of_a_shared_embedding_and_the_norm_are_left_to_the_library() -> None:
    program = lower(make_plan(pp=2, tp=2, dp=2, algorithm="tree"))

    assert {
        task.action.collective.algorithm for task in program.tasks
        if isinstance(task.action, Communicate) and task.action.name in ("embedding gradient", "gradient norm")
    } == {"auto"}  # fmt: skip


def test_a_cast_reads_one_precision_and_writes_the_other() -> None:
    plan = make_plan(reduce_precision="bf16")
    (block,) = cast_blocks(plan.strategy, numerics(plan.training), 100.0)
    (work,) = block.body

    assert [kernel.traffic_bytes for kernel in work.kernels] == [600.0]  # pyright: ignore[reportAttributeAccessIssue] - it is Work


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({"dp": 4}, True),
        ({"dp": 4, "zero_stage": 1}, True),
        ({"dp": 4, "zero_stage": 2}, False),
        ({"dp": 4, "zero_stage": 3}, False),
        ({"dp": 1}, False),
        ({"dp": 4, "fused_gradient_accumulation": True}, False),
    ],
)
def test_gradients_are_copied_into_buckets_unless_they_are_made_there(changes: dict[str, object], copies: bool) -> None:
    plan = make_plan(**{"fused_gradient_accumulation": False, **changes})

    assert copies_gradients(plan.strategy, numerics(plan.training)) == copies
    assert moved_into_bucket_bytes(plan.strategy, numerics(plan.training)) == (8.0 if copies else 0.0)


def test_a_copy_casts_on_the_way() -> None:
    plan = make_plan(dp=4, fused_gradient_accumulation=False, reduce_precision="bf16")

    assert moved_into_bucket_bytes(plan.strategy, numerics(plan.training)) == 6.0


@pytest.mark.parametrize("changes", [{}, {"reduce_precision": "fp32"}, {"reduce_precision": "bf16", "gradient_precision": "same"}])
def test_what_travels_as_it_is_kept_is_not_cast(changes: dict[str, object]) -> None:
    plan = make_plan(**changes)

    assert cast_blocks(plan.strategy, numerics(plan.training), 100.0) == ()
