"""Peak memory of one rank of each stage, by what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from typing import Final

from clustersim.strategy.activation_memory import (
    backward_bytes,
    chunk_activation_bytes,
    chunk_weight_bytes,
    end_activation_bytes,
    fullest_place,
    kept_by_layer,
    of_others_bytes,
)
from clustersim.strategy.gradients import copies_gradients, gradient_buckets, reduced_bytes
from clustersim.strategy.layers import (
    Operators,
    back,
    front,
    heaviest_run,
    layer_parameters,
    layer_runs,
    tied_parameters,
    weights_of,
)
from clustersim.strategy.offload import resident
from clustersim.strategy.optimizer import narrow_weights, state_bytes_per_parameter, update_copies_bytes
from clustersim.strategy.plan import SHARDS_GRADIENTS, Plan
from clustersim.strategy.schedules.order import StageOrder, peak_in_flight
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.stages import orders_of
from clustersim.strategy.weights import Weights, total_weights
from clustersim.workload.operators import Gemm, GroupedGemm, Operator
from clustersim.workload.shapes import FP32_BYTES

FRAMEWORK_BYTES: Final = 1.5e9
"""CUDA context, libraries, and communication buffers of NCCL: an assumption, between the 1 and 2 GB that users of PyTorch see
on an idle process with a few communicators."""

ALLOCATOR_FRACTION: Final = 0.065
"""What PyTorch's caching allocator reserved beyond the peak of what was allocated, as a share of that peak: the largest of four layouts
of a Llama on B200 (MooreThreads SimuMax 1.2, ``docs/b200/b200_release_v1.2_summary.json``), where the others had 0.03."""

FP8_COPY_BYTES: Final = 2.0
"""Of a weight that takes part in fp8 products: its cast, and the transpose that the backward product reads (NVIDIA Transformer Engine
keeps both from the first micro-batch of a step to the last: ``is_first_microbatch``)."""

FP8_SCALING_BYTES: Final = 5 * (1024 + 2) * FP32_BYTES
"""For each product, of its three operands forward and its two gradients: 1024 past maxima, scale and its inverse
(Transformer Engine, ``DelayedScaling.amax_history_len``)."""

LAYERS_IN_USE: Final = 2
"""Of activations that are offloaded: one layer computes while the one before it, or the next, is copied."""

BUCKETS_IN_USE: Final = 2
"""One is filled while the one before it is reduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHolds:
    """Peak memory of a rank of one stage."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float

    @property
    def peak_bytes(self) -> float:
        """All of it together."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes + self.buffers_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a rank of one stage holds over a step: some of it always, the rest while passes or the update run."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    buffers_bytes: float
    """All four: from the first step to the last."""
    kept_bytes: tuple[float, ...]
    """Activations of one micro-batch from its forward to its backward pass, for each chunk of the stage."""
    weight_bytes: tuple[float, ...]
    """What is left of them where the gradients of weights wait: from the pass of the input gradient to their own."""
    backward_bytes: float
    """Activations beside those that are kept, while a backward pass runs."""
    full_gradients_bytes: float
    """Gradients beside the shard, while passes run, or from the first backward pass to the reduction where micro-batches are added up."""
    gathered_bytes: float
    """Parameters of other ranks, and layers whose activations are on their way to the host or back, while passes run."""
    update_bytes: float
    """Copies that the optimizer makes, while it updates."""

    def during_passes(self, activations_bytes: float) -> StageHolds:
        """Return what is held while passes run, with so many bytes of activations."""
        return StageHolds(
            parameters_bytes=self.parameters_bytes,
            gradients_bytes=self.gradients_bytes + self.full_gradients_bytes,
            optimizer_bytes=self.optimizer_bytes,
            activations_bytes=activations_bytes,
            buffers_bytes=self.buffers_bytes + self.gathered_bytes,
        )

    def during_update(self) -> StageHolds:
        """Return what is held while the optimizer updates; no activations are."""
        return StageHolds(
            parameters_bytes=self.parameters_bytes,
            gradients_bytes=self.gradients_bytes,
            optimizer_bytes=self.optimizer_bytes + self.update_bytes,
            activations_bytes=0.0,
            buffers_bytes=self.buffers_bytes,
        )


def stage_memory(plan: Plan, stage: int) -> StageHolds:
    """Return the peak memory of one rank of a stage, by what it holds at that moment.

    Either a backward pass runs while the schedule keeps most micro-batches in flight, or the optimizer updates with copies of what it
    works on; see ``holdings`` for the parts.
    """
    held, order = holdings(plan, stage), orders_of(plan)[stage]
    activations_bytes = peak_in_flight(order, held.kept_bytes, held.weight_bytes, working_bytes=held.backward_bytes)
    passes, update = held.during_passes(activations_bytes), held.during_update()
    return max(passes, update, key=lambda moment: moment.peak_bytes)


@lru_cache(maxsize=128)
def holdings(plan: Plan, stage: int) -> Holdings:
    """Return what one rank of a stage holds over a step.

    ZeRO divides optimizer state (1), gradients (2) and parameters (3) by the shard degree. Parameter servers keep all optimizer
    state, and hosts what is offloaded to them.
    """
    strategy, number = plan.strategy, numerics(plan)
    weights, chunks = stage_weights(plan, stage), model_chunks(plan)[stage]
    shard = weights.shard(strategy.sharding)
    updated, reduced, used = (shard if strategy.zero_stage >= zero_stage else weights.total for zero_stage in (1, 2, 3))
    stays, fullest = resident(plan, stage), fullest_place(plan, chunks)
    updated *= 0.0 if strategy.data_parallel.service else stays.optimizer
    reduced_here_bytes = reduced * number.gradient_bytes * stays.gradients
    return Holdings(
        parameters_bytes=used * number.element_bytes * stays.parameters + _fp8_bytes(plan, stage),
        gradients_bytes=reduced_here_bytes,
        optimizer_bytes=updated * optimizer_bytes_per_parameter(plan),
        buffers_bytes=FRAMEWORK_BYTES + _reduction_buffers_bytes(plan, stage) + stays.buffers_bytes,
        kept_bytes=tuple(_kept_bytes(plan, chunk, fullest) + of_others_bytes(plan, chunk) for chunk in chunks),
        weight_bytes=tuple(chunk_weight_bytes(plan, chunk, fullest) for chunk in chunks),
        backward_bytes=max(backward_bytes(plan, chunk, fullest) for chunk in chunks),
        # What lives elsewhere passes whole through the memory of a lone rank too.
        full_gradients_bytes=_full_gradients_bytes(plan, chunks, reduced_here_bytes)
        if reduced < weights.total or not stays.gradients
        else 0.0,
        gathered_bytes=(_gathered_bytes(plan, chunks, orders_of(plan)[stage]) if strategy.gathers_weights else 0.0)
        + (_window_bytes(plan, chunks, fullest) if strategy.offload.activations != "accelerator" else 0.0),
        update_bytes=updated * update_copies_bytes(plan.training),
    )


def chunk_weights(plan: Plan, chunk: ModelChunk) -> Weights:
    """Return the parameters that one rank holds of a chunk, a tied head on another stage than the embedding counted there too."""
    runs = _runs(plan, chunk)
    return total_weights([*((weights_of(operators), count) for operators, count in runs), (end_weights(plan, chunk), 1)])


def end_weights(plan: Plan, chunk: ModelChunk) -> Weights:
    """Return the parameters of embedding and head on one rank, as far as a chunk holds them; a shared table counts once."""
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    return weights_of(ends).without(tied_parameters(plan) if chunk.last and chunk.beside_first else 0.0)


def stage_weights(plan: Plan, stage: int) -> Weights:
    """Return the parameters that one rank of a stage holds."""
    return total_weights((chunk_weights(plan, chunk), 1) for chunk in model_chunks(plan)[stage])


def stage_parameters(plan: Plan, stage: int) -> float:
    """Return how many parameters one rank of a stage holds."""
    return stage_weights(plan, stage).total


def optimizer_bytes_per_parameter(plan: Plan) -> float:
    """Return optimizer state for each parameter: fp32 moments, and an fp32 master copy where weights are narrower.

    Adam with 16-bit weights keeps 4 + 4 + 4 = 12 bytes.
    """
    return (FP32_BYTES if narrow_weights(plan.training) else 0.0) + state_bytes_per_parameter(plan)


def _fp8_bytes(plan: Plan, stage: int) -> float:
    """Return the fp8 copies of the weights of all layers, and their scaling state; embedding and head stay in 16 bits.

    Sharded weights are cast as they are gathered, and the copies go with them.
    """
    if plan.training.precision != "fp8":
        return 0.0
    runs = [run for chunk in model_chunks(plan)[stage] for run in _runs(plan, chunk)]
    products = [(operator, count) for operators, count in runs for operator in operators if _is_product(operator)]
    # Kept in fp8 alone, a weight and its transpose take what the one in 16 bits would have.
    copy_bytes = 0.0 if plan.strategy.gathers_weights or plan.training.fp8_parameters else FP8_COPY_BYTES
    return fsum(count * (operator.parameters * copy_bytes + FP8_SCALING_BYTES) for operator, count in products)


def _runs(plan: Plan, chunk: ModelChunk) -> tuple[tuple[Operators, int], ...]:
    return layer_runs(plan, chunk.layers.start, chunk.layers.stop)


def _is_product(operator: Operator) -> bool:
    return isinstance(operator.weight_product, Gemm | GroupedGemm)


def _kept_bytes(plan: Plan, chunk: ModelChunk, place: int | None) -> float:
    """Return what a micro-batch keeps of a chunk on the accelerator: of activations that are offloaded, those of the ends."""
    offloaded = plan.strategy.offload.activations != "accelerator"
    return end_activation_bytes(plan, chunk) if offloaded else chunk_activation_bytes(plan, chunk, place)


def _window_bytes(plan: Plan, chunks: Sequence[ModelChunk], place: int | None) -> float:
    """Return what is kept of the two layers that are on the accelerator at a time, the one in use and the one that is copied."""
    return max(heaviest_run(kept_by_layer(plan, chunk, place), LAYERS_IN_USE) for chunk in chunks)


def _gathered_bytes(plan: Plan, chunks: Sequence[ModelChunk], order: StageOrder) -> float:
    """Return the parameters that are whole at a time: embedding and head, the layer in use and those gathered ahead of it.

    Without freeing after the forward pass all of them, and so where passes through several chunks run side by side. Of stages that look
    ahead the ends of two chunks may be whole, those in use and those of the next pass.
    """
    sharding, number = plan.strategy.sharding, numerics(plan)
    layers, ends = [_layer_parameters(plan, chunk) for chunk in chunks], [end_weights(plan, chunk).total for chunk in chunks]
    ahead = sharding.prefetch if plan.strategy.data_parallel.overlap else 0
    if not sharding.reshard_after_forward or any(step.beside_next for step in order):
        most, around = fsum(size for chunk in layers for size in chunk), fsum(ends)
    else:
        most, around = max(heaviest_run(chunk, ahead + 1) for chunk in layers), fsum(ends) if ahead else max(ends)
    copies_bytes = FP8_COPY_BYTES if plan.training.precision == "fp8" else 0.0
    return (most + around) * number.element_bytes + most * copies_bytes


def _full_gradients_bytes(plan: Plan, chunks: Sequence[ModelChunk], shard_bytes: float) -> float:
    """Return the whole gradients beside the shard that is kept.

    With ZeRO-3 two layers at a time, one computed while the other is reduced, and those of embedding and head, which are complete at the
    end (PyTorch FSDP, the root unit); with ZeRO-2 what two buckets hold. Without overlap it is one of them. All gradients, of every chunk
    of a stage, are whole where micro-batches add up before they are reduced (``no_sync``). The reduction makes the shard out of them and
    frees them unit by unit, so that the two are one and not a sum (PyTorch FSDP: ``zero_grad`` leaves no shard behind, and under
    ``no_sync`` there is none before the last backward pass).
    """
    number, gradients = numerics(plan), plan.strategy.data_parallel
    if gradients.no_sync and plan.n_micro_batches > 1:
        whole = fsum(fsum(_layer_parameters(plan, chunk)) + end_weights(plan, chunk).total for chunk in chunks)
        return max(0.0, whole * number.gradient_bytes - shard_bytes)
    return max(_unreduced_bytes(plan, chunk) for chunk in chunks)


def _unreduced_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return the gradients of one chunk that are whole at a time where each micro-batch reduces its own."""
    number, gradients = numerics(plan), plan.strategy.data_parallel
    layers, ends = _layer_parameters(plan, chunk), end_weights(plan, chunk).total
    window = BUCKETS_IN_USE if gradients.overlap else 1
    if plan.strategy.zero_stage == SHARDS_GRADIENTS:
        buckets = [bucket.weights.total for bucket in gradient_buckets(plan, chunk)]
        wire_bytes = max(buckets, default=0.0) * reduced_bytes(plan) if reduced_bytes(plan) != number.gradient_bytes else 0.0
        return heaviest_run(buckets, window) * number.gradient_bytes + wire_bytes
    most = heaviest_run(layers, window)
    casts_bytes = max(layers, default=0.0) * reduced_bytes(plan) if reduced_bytes(plan) != number.element_bytes else 0.0
    return (most + ends) * number.element_bytes + casts_bytes


def _layer_parameters(plan: Plan, chunk: ModelChunk) -> tuple[float, ...]:
    return layer_parameters(plan)[chunk.layers.start : chunk.layers.stop]


def _reduction_buffers_bytes(plan: Plan, stage: int) -> float:
    """Return what the reduction of whole gradients needs beside them.

    PyTorch's DDP keeps every gradient twice, once in its bucket; see ``copies_gradients``. Sharded optimizer states use a bucket that
    fills and one that is reduced (DeepSpeed, ``reduce_bucket_size`` with ``overlap_comm``). A precision of its own on the wire needs a
    bucket in that precision.
    """
    strategy, gradients, number = plan.strategy, plan.strategy.data_parallel, numerics(plan)
    if strategy.replicas == 1 or strategy.zero_stage > 1 or gradients.service or gradients.single_process:
        return 0.0
    buckets = [bucket for chunk in model_chunks(plan)[stage] for bucket in gradient_buckets(plan, chunk)]
    dense = [(bucket.parameters, bucket.n_calls) for bucket in buckets]
    expert = [(bucket.expert_parameters, bucket.expert_calls) for bucket in buckets]
    largest = max((parameters / n_calls for parameters, n_calls in (*dense, *expert) if n_calls), default=0.0)
    cast_bytes = largest * reduced_bytes(plan) if reduced_bytes(plan) != number.gradient_bytes else 0.0
    if not copies_gradients(plan):
        return cast_bytes
    copied = fsum(bucket.weights.total for bucket in buckets) if strategy.zero_stage == 0 else BUCKETS_IN_USE * largest
    return copied * number.gradient_bytes + cast_bytes
