"""Memory that each technique holds on one rank of a stage, from which task to which, and the peak of all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import fsum
from typing import Final

from clustersim.program.holds import (
    BACKWARD_PASS,
    BACKWARD_TO_REDUCTION,
    FORWARD_TO_BACKWARD,
    GATHER_TO_LAST_PASS,
    INPUT_TO_WEIGHT,
    UPDATE,
    Hold,
    MemoryPlace,
    held_over,
)
from clustersim.strategy.activation_memory import (
    backward_bytes,
    chunk_weight_bytes,
    end_activation_bytes,
    fullest_place,
    kept_by_layer,
    of_others_bytes,
)
from clustersim.strategy.contributors.activation_offload import LAYERS_IN_USE, offloads_activations
from clustersim.strategy.contributors.parameter_server import served_slices
from clustersim.strategy.gradients import copies_gradients, gradient_buckets, reduced_bytes
from clustersim.strategy.layers import heaviest_run, layer_parameters, layer_runs, layer_weights
from clustersim.strategy.memory import end_weights, stage_weights
from clustersim.strategy.offload import NVME_TILES, TILE_PARAMETERS, offloads, state_bytes, sums_on_host
from clustersim.strategy.optimizer import optimizer_bytes_per_parameter, update_copies_bytes
from clustersim.strategy.plan import SHARDS_GRADIENTS, SHARDS_OPTIMIZER, SHARDS_PARAMETERS, Plan
from clustersim.strategy.schedules.order import StageOrder, order_tasks
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.stages import orders_of
from clustersim.strategy.units import reduction_units
from clustersim.workload.operators import Gemm, GroupedGemm
from clustersim.workload.shapes import FP32_BYTES

Holds = tuple[Hold, ...]

FRAMEWORK_BYTES: Final = 1.5e9
"""CUDA context, libraries, and communication buffers of NCCL: an assumption, between the 1 and 2 GB that users of PyTorch see
on an idle process with a few communicators."""

ALLOCATOR_FRACTION: Final = 0.065
"""Memory that PyTorch's caching allocator reserved beyond the peak of what was allocated, as a share of that peak: the largest of four
layouts of a Llama on B200 (MooreThreads SimuMax 1.2, ``docs/b200/b200_release_v1.2_summary.json``), where the others had 0.03."""

FP8_COPY_BYTES: Final = 2.0
"""Bytes of the copies of a weight in fp8 products: its cast, and the transpose that the backward product reads (NVIDIA Transformer Engine
keeps both from the first micro-batch of a step to the last: ``is_first_microbatch``)."""

FP8_SCALING_BYTES: Final = 5 * (1024 + 2) * FP32_BYTES
"""For each product, of its three operands forward and its two gradients: 1024 past maxima, scale and its inverse
(Transformer Engine, ``DelayedScaling.amax_history_len``)."""

BUCKETS_IN_USE: Final = 2
"""One is filled while the one before it is reduced."""

BUFFERED_TILES: Final = 2
"""Tiles of new parameters in page-locked memory: one is filled while the other is copied (ZeRO-Offload, section 5.1)."""


def stage_peak(plan: Plan, stage: int, *, place: MemoryPlace = "accelerator", order: StageOrder | None = None) -> Holds:
    """Return what is held in one place for a rank of a stage when most is, each hold with all its bytes at that moment.

    Parameters
    ----------
    order
        Of the passes; the one of the schedule when left out.
    """
    held = held_over(stage_holds(plan, stage, place), order_tasks(orders_of(plan)[stage] if order is None else order))
    return held.peak()


def stage_holds(plan: Plan, stage: int, place: MemoryPlace = "accelerator") -> Holds:
    """Return what all techniques hold in one place for a rank of a stage."""
    return tuple(hold for hold in _all_holds(plan, stage) if hold.place == place)


@lru_cache(maxsize=128)
def _all_holds(plan: Plan, stage: int) -> Holds:
    return tuple(hold for holds in HOLDS for hold in holds(plan, stage))


# Training state ------------------------------------------------------------------------------------------------------


def weight_holds(plan: Plan, stage: int) -> Holds:
    """Return the parameters that stay on a rank."""
    if plan.strategy.offload.parameters != "accelerator":
        return ()
    size_bytes = _kept_parameters(plan, stage, SHARDS_PARAMETERS) * numerics(plan).element_bytes
    return (Hold(category="parameters", owner="weights", bytes=size_bytes),)


def gradient_holds(plan: Plan, stage: int) -> Holds:
    """Return the gradients that stay on a rank."""
    return (Hold(category="gradients", owner="gradients", bytes=_kept_gradients_bytes(plan, stage)),)


def optimizer_holds(plan: Plan, stage: int) -> Holds:
    """Return the optimizer's state, and the copies that it makes; parameter servers and processors keep their own."""
    if plan.strategy.data_parallel.service or offloads(plan):
        return ()
    parameters = _kept_parameters(plan, stage, SHARDS_OPTIMIZER)
    copies_bytes = parameters * update_copies_bytes(plan.training)
    return (
        Hold(category="optimizer", owner="optimizer", bytes=parameters * optimizer_bytes_per_parameter(plan)),
        Hold(category="optimizer", owner="optimizer", bytes=copies_bytes, interval=UPDATE),
    )


def _kept_parameters(plan: Plan, stage: int, shards_from: int) -> float:
    """Return the parameters of a stage, or the rank's shard of them from some stage of ZeRO on."""
    weights = stage_weights(plan, stage)
    return weights.shard(plan.strategy.sharding) if plan.strategy.zero_stage >= shards_from else weights.total


def _kept_gradients_bytes(plan: Plan, stage: int) -> float:
    stays = plan.strategy.offload.gradients == "accelerator"
    return _kept_parameters(plan, stage, SHARDS_GRADIENTS) * numerics(plan).gradient_bytes if stays else 0.0


def fp8_holds(plan: Plan, stage: int) -> Holds:
    """Return the fp8 copies of the weights of all layers, and their scaling state; embedding and head stay in 16 bits.

    Sharded weights are cast as they are gathered, and the copies go with them.
    """
    if plan.training.precision != "fp8":
        return ()
    runs = [run for chunk in model_chunks(plan)[stage] for run in layer_runs(plan, chunk.layers.start, chunk.layers.stop)]
    products = [
        (operator, count) for operators, count in runs for operator in operators if isinstance(operator.weight_product, Gemm | GroupedGemm)
    ]
    # Kept in fp8 alone, a weight and its transpose take what the one in 16 bits would have.
    copy_bytes = 0.0 if plan.strategy.gathers_weights or plan.training.fp8_parameters else FP8_COPY_BYTES
    size_bytes = fsum(count * (operator.parameters * copy_bytes + FP8_SCALING_BYTES) for operator, count in products)
    return (Hold(category="parameters", owner="fp8", bytes=size_bytes),)


def framework_holds(_plan: Plan, _stage: int) -> Holds:
    """Return the reserve of the framework and of the communication library."""
    return (Hold(category="buffers", owner="framework", bytes=FRAMEWORK_BYTES),)


# Activations ---------------------------------------------------------------------------------------------------------


def activation_holds(plan: Plan, stage: int) -> Holds:
    """Return the activations of a micro-batch between its passes, for each chunk: of layers, which may live on the host, and of the ends.

    Where weight gradients wait, part of them is kept on.
    """
    chunks, holds = model_chunks(plan)[stage], list[Hold]()
    fullest, away = fullest_place(plan, chunks), offloads_activations(plan)
    for number, chunk in enumerate(chunks):
        layers_bytes = fsum(kept_by_layer(plan, chunk, None if away else fullest))
        kept = Hold(category="activations", owner="activations", bytes=layers_bytes, interval=FORWARD_TO_BACKWARD, chunk=number)
        holds += [
            replace(kept, place="host" if away else "accelerator"),
            replace(kept, bytes=end_activation_bytes(plan, chunk)),
            replace(kept, owner="single_process", bytes=of_others_bytes(plan, chunk)),
            replace(kept, owner="weight_gradients", bytes=chunk_weight_bytes(plan, chunk, fullest), interval=INPUT_TO_WEIGHT),
        ]
    return tuple(holds)


def backward_holds(plan: Plan, stage: int) -> Holds:
    """Return what a backward pass holds beside the activations that are kept, of the chunk in which it is most."""
    chunks = model_chunks(plan)[stage]
    found = [backward_bytes(plan, chunk, fullest_place(plan, chunks)) for chunk in chunks]
    most = max(found, key=lambda sizes: fsum(sizes.values()))
    return tuple(Hold(category="activations", owner=owner, bytes=size, interval=BACKWARD_PASS) for owner, size in most.items())


# Gradients on their way ----------------------------------------------------------------------------------------------


def reduction_holds(plan: Plan, stage: int) -> Holds:
    """Return what the reduction of whole gradients needs beside them.

    PyTorch's DDP keeps every gradient twice, once in its bucket; see ``copies_gradients``. Sharded optimizer states use a bucket that
    fills and one that is reduced (DeepSpeed, ``reduce_bucket_size`` with ``overlap_comm``). A precision of its own on the wire needs a
    bucket in that precision.
    """
    strategy, gradients, number = plan.strategy, plan.strategy.data_parallel, numerics(plan)
    if strategy.replicas == 1 or strategy.zero_stage >= SHARDS_GRADIENTS or gradients.service or gradients.single_process:
        return ()
    buckets = [bucket for chunk in model_chunks(plan)[stage] for bucket in gradient_buckets(plan, chunk)]
    calls = [call for each in buckets for call in ((each.parameters, each.n_calls), (each.expert_parameters, each.expert_calls))]
    largest = max((parameters / n_calls for parameters, n_calls in calls if n_calls), default=0.0)
    size_bytes = largest * reduced_bytes(plan) if reduced_bytes(plan) != number.gradient_bytes else 0.0
    if copies_gradients(plan):
        copied = fsum(bucket.weights.total for bucket in buckets) if strategy.zero_stage == 0 else BUCKETS_IN_USE * largest
        size_bytes += copied * number.gradient_bytes
    return (Hold(category="buffers", owner="gradient_reduction", bytes=size_bytes),)


def whole_gradient_holds(plan: Plan, stage: int) -> Holds:
    """Return the whole gradients beside the shard that is kept.

    With ZeRO-3 two layers at a time, one computed while the other is reduced, and those of embedding and head, which are complete at the
    end (PyTorch FSDP, the root unit); with ZeRO-2 what two buckets hold. Without overlap it is one of them. All gradients, of every chunk
    of a stage, are whole where micro-batches add up before they are reduced (``no_sync``). The reduction makes the shard out of them and
    frees them unit by unit, so that the two are one and not a sum (PyTorch FSDP: ``zero_grad`` leaves no shard behind, and under
    ``no_sync`` there is none before the last backward pass).
    """
    whole = stage_weights(plan, stage).total
    stays = plan.strategy.offload.gradients == "accelerator"
    # Gradients that live elsewhere pass whole through the memory of a lone rank too.
    if stays and _kept_parameters(plan, stage, SHARDS_GRADIENTS) >= whole:
        return ()
    if plan.strategy.data_parallel.no_sync and plan.n_micro_batches > 1:
        size_bytes = max(0.0, whole * numerics(plan).gradient_bytes - _kept_gradients_bytes(plan, stage))
    else:
        size_bytes = max(_unreduced_bytes(plan, chunk) for chunk in model_chunks(plan)[stage])
    return (Hold(category="gradients", owner="state_sharding", bytes=size_bytes, interval=BACKWARD_TO_REDUCTION),)


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


def _layer_parameters(plan: Plan, chunk: ModelChunk) -> Sequence[float]:
    return layer_parameters(plan)[chunk.layers.start : chunk.layers.stop]


# Parameters on their way ---------------------------------------------------------------------------------------------


def gathered_holds(plan: Plan, stage: int) -> Holds:
    """Return the parameters that are whole at a time: embedding and head, the layer in use and those gathered ahead of it.

    Without freeing after the forward pass all of them, and so where passes through several chunks run side by side. Of stages that look
    ahead the ends of two chunks may be whole, those in use and those of the next pass.
    """
    if not plan.strategy.gathers_weights:
        return ()
    sharding, chunks = plan.strategy.sharding, model_chunks(plan)[stage]
    layers, ends = [_layer_parameters(plan, chunk) for chunk in chunks], [end_weights(plan, chunk).total for chunk in chunks]
    ahead = sharding.prefetch if plan.strategy.data_parallel.overlap else 0
    if not sharding.reshard_after_forward or any(step.beside_next for step in orders_of(plan)[stage]):
        most, around = fsum(size for chunk in layers for size in chunk), fsum(ends)
    else:
        most, around = max(heaviest_run(chunk, ahead + 1) for chunk in layers), fsum(ends) if ahead or sharding.keep_ends else max(ends)
    copies_bytes = FP8_COPY_BYTES if plan.training.precision == "fp8" else 0.0
    size_bytes = (most + around) * numerics(plan).element_bytes + most * copies_bytes
    return (Hold(category="buffers", owner="state_sharding", bytes=size_bytes, interval=GATHER_TO_LAST_PASS),)


# Hosts ---------------------------------------------------------------------------------------------------------------


def offload_holds(plan: Plan, stage: int) -> Holds:
    """Return the buffers that stand in for what is offloaded.

    Gradients that leave are held as the shards of two buckets, or with ZeRO-3 of two units, one just reduced and one copied.
    Parameters that leave come back as
    the shards of as many layers as are gathered ahead, and of the one that computes. Of activations that leave two layers are on the
    accelerator, the one in use and the one that is copied.
    """
    offload, sharding, number = plan.strategy.offload, plan.strategy.sharding, numerics(plan)
    chunks, layers = model_chunks(plan)[stage], layer_weights(plan)
    buffers_bytes = layers_bytes = 0.0
    ahead = sharding.prefetch if plan.strategy.data_parallel.overlap else 0
    if offload.gradients != "accelerator" and plan.strategy.zero_stage == SHARDS_PARAMETERS:
        units = [[unit.weights.shard(sharding) for unit in reduction_units(plan, chunk)] for chunk in chunks]
        buffers_bytes += max(heaviest_run(chunk, BUCKETS_IN_USE) for chunk in units) * number.gradient_bytes
    elif offload.gradients != "accelerator":
        whole_bytes = sum(layers[layer].total for chunk in chunks for layer in chunk.layers) * number.gradient_bytes
        buffers_bytes += BUCKETS_IN_USE * min(plan.strategy.data_parallel.bucket_bytes, whole_bytes) / sharding.degree
    if offload.parameters != "accelerator":
        shards = [[layers[layer].shard(sharding) for layer in chunk.layers] for chunk in chunks]
        buffers_bytes += max(heaviest_run(chunk, 1 + ahead) for chunk in shards) * number.element_bytes
    if offloads_activations(plan):
        fullest = fullest_place(plan, chunks)
        layers_bytes = max(heaviest_run(kept_by_layer(plan, chunk, fullest), LAYERS_IN_USE) for chunk in chunks)
    return (
        Hold(category="buffers", owner="offload", bytes=buffers_bytes),
        Hold(category="buffers", owner="activation_offload", bytes=layers_bytes, interval=GATHER_TO_LAST_PASS),
    )


def host_state_holds(plan: Plan, stage: int) -> Holds:
    """Return what the node of a rank keeps: optimizer state, the gradients that it reads, and parameters that live there.

    What lives on drives passes through its memory in tiles.
    """
    if not offloads(plan):
        return ()
    offload, number = plan.strategy.offload, numerics(plan)
    shard = stage_weights(plan, stage).shard(plan.strategy.sharding)
    tile = min(shard, TILE_PARAMETERS)
    passing = min(NVME_TILES * tile, shard)
    # Sums of several micro-batches wait in memory, and go to the drives when they are final.
    gradients_stay = offload.gradients != "nvme" or sums_on_host(plan)
    parameters = shard if offload.parameters == "host" else min(BUFFERED_TILES * tile, shard)
    return (
        Hold(category="parameters", owner="offload", bytes=parameters * number.element_bytes, place="host"),
        Hold(category="gradients", owner="offload", bytes=(shard if gradients_stay else passing) * number.gradient_bytes, place="host"),
        Hold(
            category="optimizer",
            owner="offload",
            bytes=(passing if offload.optimizer == "nvme" else shard) * state_bytes(plan),
            place="host",
        ),
    )


def server_holds(plan: Plan, _stage: int) -> Holds:
    """Return what the fullest parameter server keeps: weights as they are sent, the sum of the gradients, and the optimizer's state."""
    service = plan.strategy.data_parallel.service
    if service is None:
        return ()
    (whole,) = served_slices(plan, service, [(0, plan.model.n_layers)])
    most = plan.strategy.tp * plan.strategy.cp * max(each.parameters * max(each.servers.shares) for each in whole.holdings)
    number = numerics(plan)
    return (
        Hold(category="parameters", owner="parameter_server", bytes=most * number.element_bytes, place="server"),
        Hold(category="gradients", owner="parameter_server", bytes=most * number.gradient_bytes, place="server"),
        Hold(category="optimizer", owner="parameter_server", bytes=most * optimizer_bytes_per_parameter(plan), place="server"),
    )


HOLDS: Final[tuple[Callable[[Plan, int], Holds], ...]] = (
    weight_holds,
    gradient_holds,
    optimizer_holds,
    fp8_holds,
    framework_holds,
    activation_holds,
    backward_holds,
    reduction_holds,
    whole_gradient_holds,
    gathered_holds,
    offload_holds,
    host_state_holds,
    server_holds,
)
"""All techniques that hold memory."""
