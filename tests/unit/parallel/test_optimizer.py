"""State and traffic of optimizers."""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import get_args

import pytest

from clustersim.errors import DomainError
from clustersim.parallel.contributors.optimizer_update import OffloadedUpdate, OptimizerUpdate
from clustersim.parallel.gradients import chunk_tensors
from clustersim.parallel.layers import weights_of
from clustersim.parallel.lower import lower
from clustersim.parallel.optimizer import (
    EAGER_PASSES,
    FP8_CAST_BYTES,
    FUSED_LAUNCHES,
    FUSED_PASSES,
    NEWTON_SCHULZ,
    UPDATE_BYTES,
    layer_matrices,
    offloaded_update,
    optimizer_bytes_per_parameter,
    optimizer_update,
    state_bytes_per_parameter,
    update_bytes,
    update_copies_bytes,
)
from clustersim.parallel.stage import Stage, stage_of
from clustersim.parallel.step_settings import Optimizer, OptimizerKernels
from clustersim.parallel.training_plan import Plan
from clustersim.parallel.weights import Weights
from clustersim.program.tasks import Compute, Work
from clustersim.workloads.operators import Stream
from clustersim.workloads.transformer import Transformer
from tests.unit.parallel.factories import GPT, LLAMA, computes, kernels_of, layer_parameters, local_of, make_plan

OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
PSI = 1000.0


def stage_with_psi(plan: Plan) -> Stage:
    return replace(stage_of(plan, 0), weights=Weights(dense=PSI))


def work_of(plan: Plan) -> Work:
    (work,) = optimizer_update(stage_with_psi(plan)).blocks[0].body
    assert isinstance(work, Work)
    return work


def moved_bytes(plan: Plan) -> float:
    return sum(kernel.traffic_bytes for kernel in work_of(plan).kernels)


def test_the_update_is_one_action_of_the_optimizer_s_kind() -> None:
    action = optimizer_update(stage_with_psi(make_plan()))

    assert isinstance(action, Compute)
    assert (action.name, action.phase, work_of(make_plan()).phase) == ("optimizer", "optimizer", "optimizer")


@pytest.mark.parametrize(
    ("precision", "optimizer", "size"),
    [
        # Norm 4, clip 8, update, zero 4; where weights are narrow, read the master weight 4 and write it in 16 bits 2.
        ("fp32", "sgd", 4 + 8 + 12 + 4),
        ("fp32", "momentum", 4 + 8 + 20 + 4),
        ("fp32", "adam", 4 + 8 + 28 + 4),
        ("fp32", "lamb", 4 + 48 + 4),  # clips as it reads
        ("fp32", "adafactor", 4 + 24 + 4),
        ("bf16", "adam", 4 + 8 + 28 + 4 + 4 + 2),
        ("fp16", "adam", 4 + 8 + 28 + 4 + 4 + 2 + 8),  # the loss scale is taken out
        ("fp8", "adam", 4 + 8 + 28 + 4 + 4 + 2 + 4),  # and the weight is cast, and its transpose
    ],
)
def test_each_parameter_moves_so_many_bytes(precision: str, optimizer: str, size: float) -> None:
    assert moved_bytes(make_plan(precision=precision, optimizer=optimizer)) == PSI * size


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_kernel_an_operation_never_moves_less_than_a_fused_one(optimizer: Optimizer) -> None:
    assert sum(EAGER_PASSES[optimizer]) >= sum(FUSED_PASSES[optimizer]) == UPDATE_BYTES[optimizer]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fused_update_reads_gradient_and_weight_and_state_and_writes_all_but_the_gradient(optimizer: Optimizer) -> None:
    plan = make_plan(optimizer=optimizer)
    states = state_bytes_per_parameter(plan.training, local_of(plan)) // 4 * 4

    assert UPDATE_BYTES[optimizer] >= 2 * states + 3 * 4


def test_pytorch_s_adam_takes_80_bytes_a_parameter_in_eight_kernels() -> None:
    plan = make_plan(kernels="eager", precision="fp32")

    assert (len(EAGER_PASSES["adam"]), update_bytes(plan.training)) == (8, 80.0)
    assert work_of(plan).kernels[0].launches > work_of(make_plan(precision="fp32")).kernels[0].launches  # pyright: ignore[reportAttributeAccessIssue] - it is a Stream


def test_a_shard_is_updated_by_its_rank_alone_and_all_gradients_are_zeroed() -> None:
    whole, shard = moved_bytes(make_plan(dp=4)), moved_bytes(make_plan(dp=4, zero_stage=1))

    assert shard - 4 * PSI == (whole - 4 * PSI) / 4


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("degree", [2, 4])
def test_sharded_gradients_are_zeroed_where_they_are(zero_stage: int, degree: int) -> None:
    sharded = make_plan(dp=4, zero_stage=zero_stage, shard_degree=degree)

    assert moved_bytes(sharded) == moved_bytes(make_plan(dp=4)) / degree


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"dp": 4}, 4 + 2),
        ({"dp": 4, "zero_stage": 1}, (4 + 2) / 4),
        ({"dp": 4, "zero_stage": 1, "shard_degree": 2}, 4 + 2),  # all ranks have the whole sum
        ({"dp": 4, "zero_stage": 2, "shard_degree": 2}, (4 + 2) / 2),
        ({"dp": 4, "no_sync": False}, 4 * (4 + 2)),  # each of the four micro-batches
        ({"dp": 1}, 0),
    ],
)
def test_gradients_that_travelled_in_16_bits_are_cast_back(changes: dict[str, object], size: float) -> None:
    plain, cast = (moved_bytes(make_plan(reduce_precision=precision, **changes)) for precision in ("same", "bf16"))

    assert cast - plain == pytest.approx(PSI * size, rel=1e-12)


def test_adafactor_keeps_rows_and_columns_of_matrices_and_all_of_vectors() -> None:
    h, v, f = 512, 8192, 1536
    # Llama: queries, keys and values of 8 + 2 * 4 heads of 64; gated MLP; two normalisations a layer and one at the end.
    layer = (h + 16 * 64) + (h + h) + (h + 2 * f) + (f + h) + 2 * h
    ends = 2 * (v * h) ** 0.5 + (h + v) + h
    parameters = 16 * layer_parameters(LLAMA) + 2 * v * h + h

    plan = make_plan(LLAMA, optimizer="adafactor")

    assert state_bytes_per_parameter(plan.training, local_of(plan)) == pytest.approx(4 * (16 * layer + ends) / parameters, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, 0),
        ({"gradient_precision": "same"}, 4),  # an fp32 copy of the gradient for the master weight
        ({"gradient_precision": "same", "precision": "fp32"}, 0),
        ({"kernels": "eager"}, 8),  # root and denominator
        ({"kernels": "eager", "optimizer": "sgd"}, 0),
        ({"kernels": "eager", "gradient_precision": "same"}, 12),
    ],
)
def test_an_update_makes_copies_where_its_kernels_or_its_gradients_are_apart(changes: dict[str, object], size: float) -> None:
    assert update_copies_bytes(make_plan(**changes).training) == size


def test_sums_are_copied_out_of_buckets_where_gradients_were_copied_in() -> None:
    views, copies = (moved_bytes(make_plan(dp=4, fused_gradient_accumulation=fused)) for fused in (True, False))

    assert copies - views == PSI * 8


def test_a_loop_over_tensors_launches_a_kernel_for_each() -> None:
    def launches(kernels: OptimizerKernels, **changes: object) -> int:
        plan = make_plan(dp=2, global_batch_size=2, **changes)
        update = work_of(replace(plan, training=plan.training.changed(kernels="eager", optimizer_kernels=kernels))).kernels[-1]
        assert isinstance(update, Stream)
        return update.launches

    passes = len(EAGER_PASSES["adam"])
    tensors = len(chunk_tensors(local_of(make_plan()), stage_of(make_plan(), 0).chunks[0]))
    assert launches("loop") - launches("foreach") == passes * (tensors - FUSED_LAUNCHES)
    # Flat parameters of each layer, and of embedding with head.
    assert launches("loop", zero_stage=3) - launches("foreach", zero_stage=3) == passes * (GPT.n_layers + 1 - FUSED_LAUNCHES)


def test_an_accelerator_whose_parameters_are_updated_elsewhere_reads_and_clears_gradients() -> None:
    plan = make_plan(dp=2, global_batch_size=2, zero_stage=2, no_sync=False)
    (work,) = offloaded_update(stage_with_psi(plan)).blocks[0].body
    assert isinstance(work, Work)

    assert sum(kernel.traffic_bytes for kernel in work.kernels) == PSI / 2 * (4 + 4)


def test_weights_in_fp8_alone_are_transposed() -> None:
    wide, narrow = (moved_bytes(make_plan(precision="fp8", fp8_parameters=alone)) for alone in (False, True))

    assert wide - narrow == PSI * (FP8_CAST_BYTES - 2)


def test_weights_are_cast_to_fp8_once_or_whenever_they_have_been_gathered() -> None:
    def casts(zero_stage: int) -> float:
        wide, narrow = (moved_bytes(make_plan(dp=2, global_batch_size=2, zero_stage=zero_stage, precision=p)) for p in ("bf16", "fp8"))
        return narrow - wide

    assert casts(1) == PSI * FP8_CAST_BYTES
    assert casts(3) == 0.0
    passes = computes(lower(make_plan(dp=2, global_batch_size=2, zero_stage=3, no_sync=False, precision="fp8")), 0)
    second = [task.action for task in passes if task.action.name == "F"][1]
    assert isinstance(second, Compute)
    assert second.blocks[0].name == "cast"
    (cast,) = kernels_of(second.blocks[:1])
    assert cast == Stream(layer_parameters(GPT) * FP8_CAST_BYTES)


@pytest.mark.parametrize(("moments", "kept"), [("fp32", 12.0), ("bf16", 8.0), ("fp16", 8.0), ("fp8", 6.0)])
def test_moments_in_fewer_bits_are_stored_read_and_written_in_them(moments: str, kept: float) -> None:
    narrow, wide = (make_plan(LLAMA, moment_precision=each, optimizer_kernels="fused") for each in (moments, "fp32"))

    assert optimizer_bytes_per_parameter(narrow.training, local_of(narrow)) == kept
    # Both moments are read once and written once.
    assert update_bytes(wide.training) - update_bytes(narrow.training) == 2 * (12.0 - kept)


def test_moments_are_not_narrow_where_each_operation_is_a_kernel() -> None:
    with pytest.raises(DomainError, match="keep moments in fp32, not in bf16"):
        refuse(make_plan(LLAMA, moment_precision="bf16", optimizer_kernels="foreach"))


@pytest.mark.parametrize("tp", [1, 2])
def test_muon_multiplies_the_matrices_of_layers_fifteen_times(tp: int) -> None:
    plan = make_plan(LLAMA, optimizer="muon", tp=tp)
    update, *orthogonal = optimizer_update(stage_of(plan, 0)).blocks

    matrices = layer_matrices(local_of(plan), range(LLAMA.n_layers))
    flops = sum(NEWTON_SCHULZ * (4 * m * m * n + 2 * m**3) * number for (m, n), number in matrices.items())
    assert fsum(kernel.flops for kernel in kernels_of(tuple(orthogonal))) == pytest.approx(flops, rel=1e-12)
    assert update.name == "update"
    assert sum(m * n * number for (m, n), number in matrices.items()) == (LLAMA.n_layers * layer_matrix_parameters(LLAMA)) / tp


def test_muon_keeps_one_moment_of_matrices_in_layers_and_two_of_the_rest() -> None:
    plan = make_plan(LLAMA, optimizer="muon")
    local = local_of(plan)
    orthogonal = sum(m * n * number for (m, n), number in layer_matrices(local, range(LLAMA.n_layers)).items())
    total = sum(each.total for each in local.layer_weights()) + weights_of(local.front).total + weights_of(local.back).total

    assert state_bytes_per_parameter(plan.training, local) == pytest.approx(4 * (2 * total - orthogonal) / total, rel=1e-12)


def test_whole_matrices_are_dealt_to_ranks() -> None:
    one, eight = (
        optimizer_update(stage_of(make_plan(LLAMA, optimizer="muon", dp=8, zero_stage=stage, gather="tensor" if stage else "layer"), 0))
        for stage in (0, 1)
    )
    dealt = [-(-block.repeat // NEWTON_SCHULZ // 8) for block in one.blocks[1:]]
    assert [block.repeat for block in eight.blocks[1:]] == [NEWTON_SCHULZ * number for number in dealt]
    with pytest.raises(DomainError, match="Muon updates whole matrices"):
        refuse(make_plan(LLAMA, optimizer="muon", dp=8, zero_stage=1, gather="layer"))


def refuse(plan: Plan) -> None:
    for contributor in (OptimizerUpdate, OffloadedUpdate):
        contributor.refuse(plan.strategy, plan.strategy, model=plan.model, training=plan.training)


def layer_matrix_parameters(model: Transformer) -> int:
    heads = model.n_heads + 2 * model.n_kv_heads
    return model.hidden_size * (heads * model.head_dim + model.n_heads * model.head_dim + 3 * model.intermediate_size)
