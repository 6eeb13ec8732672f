"""Gradient reduction: its buckets, its number formats and its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, fsum
from types import MappingProxyType
from typing import Final

from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.step_settings import DataParallelSettings, WirePrecision
from clustersim.parallel.training_plan import Strategy
from clustersim.parallel.weights import Weights
from clustersim.program.tasks import Block, Work
from clustersim.units.grouping import grouped
from clustersim.workloads.operators import Stream
from clustersim.workloads.shapes import FP32_BYTES, Numerics

GRADIENT_STREAM: Final = "dp"
"""Gradient stream."""

COPY_STREAM: Final = "dp_copies"
"""Stream on which copies of a sharded model add up their shards."""

WIRE_BYTES: Final[Mapping[WirePrecision, float]] = MappingProxyType({"fp32": FP32_BYTES, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0})
"""Bytes of a number on the wire, where it differs from the stored format."""


SHARDS_OF_COPIES: Final[tuple[CollectiveOp, ...]] = ("reduce_scatter", "all_reduce", "all_gather")
"""Operations of hybrid sharding of gradients: inside a shard group, between copies, and inside the group again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are reduced together, once the backward pass has completed a layer of their chunk."""

    parameters: float
    """Parameters of all but experts."""
    layer: int
    """The lowest layer that must be complete, counted from the first of the chunk; the embedding adjoins layer 0."""
    n_calls: int = 1
    """Buckets that become ready with this layer: number of consecutive calls."""
    expert_parameters: float = 0.0
    """Parameters of experts, which have their own buckets because other ranks share them."""
    expert_calls: int = 0

    @property
    def weights(self) -> Weights:
        """All of them."""
        return Weights(dense=self.parameters, expert=self.expert_parameters)


@lru_cache(maxsize=256)
def gradient_buckets(local: LocalModel, gradients: DataParallelSettings, chunk: ModelChunk) -> tuple[Bucket, ...]:
    """Return the buckets of a chunk in the order in which they become ready, one entry for each layer that completes some.

    As PyTorch fills them: whole tensors, last one of the model first; the tensor with which a bucket reaches its size closes it,
    so that it may be larger, and one tensor of any size is never cut. What one operation needs (a weight and its bias) counts as
    one tensor. The first bucket has a size of its own where the settings give one. Experts have buckets of their own (Megatron-LM,
    ``expert_parallel_buffers``). The layers of the entries fall, and the last of them is 0.

    References
    ----------
    .. [1] S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.3; and
       torch/csrc/distributed/c10d/reducer.cpp, ``compute_bucket_assignment_by_size`` and ``rebuild_buckets``.
    """
    tensors, number_bytes = chunk_tensors(local, chunk), local.numerics.gradient_bytes
    dense, expert = (_filled(gradients, number_bytes, [tensor for tensor in tensors if tensor.expert is kind]) for kind in (False, True))
    return tuple(
        Bucket(
            parameters=fsum(dense.get(layer, ())),
            layer=layer,
            n_calls=len(dense.get(layer, ())),
            expert_parameters=fsum(expert.get(layer, ())),
            expert_calls=len(expert.get(layer, ())),
        )
        for layer in sorted({*dense, *expert}, reverse=True)
    )


def _filled(gradients: DataParallelSettings, number_bytes: float, tensors: Sequence[WeightAndBias]) -> dict[int, list[float]]:
    """Return the sizes of the buckets that become ready with each layer."""
    limit_bytes = gradients.bucket_bytes if gradients.first_bucket_bytes is None else gradients.first_bucket_bytes
    closed: list[tuple[int, float]] = []
    held: list[float] = []
    for tensor in reversed(tensors):
        held.append(tensor.parameters)
        if fsum(held) * number_bytes >= limit_bytes:
            closed.append((tensor.layer, fsum(held)))
            held, limit_bytes = [], gradients.bucket_bytes
    if held:
        closed.append((0, fsum(held)))
    if closed:
        closed[-1] = (0, closed[-1][1])
    return grouped(closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightAndBias:
    """Parameters of one operation of a layer: a weight and its bias."""

    layer: int
    """Counted from the first of the chunk."""
    parameters: float
    expert: bool = False


def chunk_tensors(local: LocalModel, chunk: ModelChunk) -> tuple[WeightAndBias, ...]:
    """Return the tensors of a chunk in forward order.

    Embedding and head belong to the first and the last layer. A tied head on the stage of the embedding has no weight of its own.
    """
    tensors = [WeightAndBias(layer=0, parameters=operator.parameters) for operator in (local.front if chunk.first else ())]
    first = 0
    for operators, count in local.runs(chunk.layers):
        sizes = [(operator.parameters, operator.expert) for operator in operators if operator.parameters]
        for number in range(first, first + count):
            tensors += [WeightAndBias(layer=number, parameters=parameters, expert=expert) for parameters, expert in sizes]
        first += count
    if chunk.last:
        shared, last = local.tied_parameters if chunk.beside_first else 0.0, max(chunk.n_layers - 1, 0)
        behind = [(operator.parameters - (shared if operator.role == "logits" else 0.0), operator.expert) for operator in local.back]
        tensors += [WeightAndBias(layer=last, parameters=parameters, expert=expert) for parameters, expert in behind]
    return tuple(tensor for tensor in tensors if tensor.parameters)


def layer_slices(local: LocalModel, bucket_bytes: float) -> tuple[tuple[int, int], ...]:
    """Return first and last layer, the last one excluded, of slices of as many layers as fill a bucket, in forward order.

    Equal layers are divided evenly. Of others a slice is filled from its last layer on, as backward passes go, until it fills a bucket.
    """
    sizes_bytes = [weights.total * local.numerics.gradient_bytes for weights in local.layer_weights()]
    n_layers = len(sizes_bytes)
    if len(set(sizes_bytes)) == 1:
        count = max(1, n_layers // max(1, int(bucket_bytes // sizes_bytes[0])))
        return tuple(pairwise(n_layers * number // count for number in range(count + 1)))
    borders, held_bytes = [n_layers], 0.0
    for layer in range(n_layers - 1, 0, -1):
        held_bytes += sizes_bytes[layer]
        if held_bytes >= bucket_bytes:
            borders.append(layer)
            held_bytes = 0.0
    return tuple(pairwise(reversed([*borders, 0])))


def gradient_operations(strategy: Strategy) -> tuple[CollectiveOp, ...]:
    """Return the collectives of data parallelism: gradient reduction, and the all-gather of sharded weights.

    Where several ranks hold a copy together but not all of them, copies add up: with zero_stage 1 whole gradients, above shards.
    """
    return operations_among(strategy.replicas, strategy.sharding.degree, strategy)


def operations_among(n_holders: int, degree: int, strategy: Strategy) -> tuple[CollectiveOp, ...]:
    """Return the same for parameters on a number of ranks, ``degree`` of them for each copy."""
    if degree == 1:
        return ("all_reduce",)
    if strategy.deals_tensors:
        return ("all_reduce", "broadcast")
    if degree == n_holders:
        return ("reduce_scatter", "all_gather")
    return ("all_reduce", "all_gather") if strategy.zero_stage == 1 else SHARDS_OF_COPIES


def n_buckets(strategy: Strategy, size_bytes: float) -> int:
    """Return the number of buckets for a number of bytes, at least one."""
    return max(1, ceil(size_bytes / strategy.data_parallel.bucket_bytes))


def reduced_bytes(gradients: DataParallelSettings, number: Numerics) -> float:
    """Return the bytes of one gradient on the wire."""
    precision = gradients.reduce_precision
    return number.gradient_bytes if precision == "same" else WIRE_BYTES[precision]


def gathered_bytes(gradients: DataParallelSettings, number: Numerics) -> float:
    """Return the bytes of one parameter on the wire while sharded ones are gathered."""
    precision = gradients.gather_precision
    return number.element_bytes if precision == "same" else WIRE_BYTES[precision]


def copies_gradients(strategy: Strategy, number: Numerics) -> bool:
    """Return whether gradients are copied into the buckets in which they are reduced.

    PyTorch's DDP does so unless it is told otherwise (``gradient_as_bucket_view=False``), and DeepSpeed with sharded optimizer states
    (``contiguous_gradients``). Where the product of a weight gradient adds into a buffer, as in Megatron-LM, that buffer is reduced. FSDP
    makes gradients in place.
    """
    alone = strategy.replicas == 1 or strategy.data_parallel.central
    return not alone and strategy.zero_stage < 2 and not number.fused_gradient_accumulation


def moved_into_bucket_bytes(strategy: Strategy, number: Numerics) -> float:
    """Return the bytes that one gradient reads and writes on its way into a bucket: a copy, a cast to the wire format, or both."""
    kept_bytes, wire_bytes = number.gradient_bytes, reduced_bytes(strategy.data_parallel, number)
    return kept_bytes + wire_bytes if wire_bytes != kept_bytes or copies_gradients(strategy, number) else 0.0


def cast_blocks(strategy: Strategy, number: Numerics, parameters: float) -> tuple[Block, ...]:
    """Return the copy of gradients into their buckets, for the end of a backward pass; nothing where they are reduced in place."""
    moved_bytes = moved_into_bucket_bytes(strategy, number)
    if not moved_bytes:
        return ()
    work = Work(name="fill bucket", phase="backward", kernels=(Stream(parameters * moved_bytes),))
    return (Block(name="cast", body=(work,)),)
