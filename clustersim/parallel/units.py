"""Units in which sharded parameters are gathered and reduced: a layer at a time, and embedding with head."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

from clustersim.parallel.gradients import Bucket, gathered_bytes, gradient_buckets, n_buckets, reduced_bytes
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import FP8_CAST_BYTES
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, GatherUnit, Strategy
from clustersim.parallel.weights import Weights
from clustersim.program.tasks import Block, Work
from clustersim.workloads.operators import Stream
from clustersim.workloads.shapes import Numerics

BUCKETS_IN_USE: Final = 2
"""One is filled while the one before it is reduced."""


def gather_calls(local: LocalModel, chunk: ModelChunk, gather: GatherUnit) -> tuple[tuple[int, ...], int]:
    """Return the calls that gather each layer of a chunk, and those of its ends: one, or one for each tensor."""
    units = [*(local.layer(layer) for layer in chunk.layers), local.ends(chunk)]
    tensors = [sum(1 for operator in unit if operator.parameters) for unit in units]
    calls = [1 if gather == "layer" else max(1, count) for count in tensors]
    return tuple(calls[:-1]), calls[-1]


def reduction_units(local: LocalModel, strategy: Strategy, chunk: ModelChunk) -> tuple[Bucket, ...]:
    """Return the gradients of a chunk in reduction units, in the order in which the backward pass completes them.

    Where parameters are sharded, layer by layer and embedding with head at the end; otherwise in buckets.
    """
    if strategy.zero_stage < SHARDS_PARAMETERS:
        return gradient_buckets(local, strategy.data_parallel, chunk)
    layers, ends, number = local.layer_weights(chunk.layers), local.end_weights(chunk), local.numerics
    whole = [_bucket(strategy, number, weights, layer) for layer, weights in reversed(list(enumerate(layers))) if weights.total]
    return (*whole, *([_bucket(strategy, number, ends, 0)] if ends.total else []))


def reduces_in_units(strategy: Strategy) -> bool:
    """Return whether each unit is reduced when its gradients are complete, and not after the last pass."""
    return strategy.data_parallel.overlap or strategy.zero_stage >= SHARDS_PARAMETERS


def reductions(local: LocalModel, strategy: Strategy, chunks: Sequence[ModelChunk]) -> tuple[Bucket, ...]:
    """Return the reductions of chunks whose gradients are complete: of every unit, or one of all, with as many calls."""
    units = tuple(bucket for chunk in chunks for bucket in reduction_units(local, strategy, chunk))
    if reduces_in_units(strategy) or not units:
        return units
    one = Bucket(
        parameters=fsum(each.parameters for each in units),
        layer=0,
        n_calls=sum(each.n_calls for each in units),
        expert_parameters=fsum(each.expert_parameters for each in units),
        expert_calls=sum(each.expert_calls for each in units),
    )
    return (one,)


def casts_gathered(strategy: Strategy, number: Numerics, gathered: Weights, layers: Weights) -> tuple[Block, ...]:
    """Return the casts of gathered weights: to fp8 for products, and around a gathering in another precision, before and after it.

    Parameters
    ----------
    layers
        Which of them take part in products in fp8: those of layers.
    """
    kept_bytes, wire_bytes = number.element_bytes, gathered_bytes(strategy.data_parallel, number)
    kernels: list[Stream] = []
    if gathered.total and kept_bytes != wire_bytes:
        numbers = gathered.total + gathered.shard(strategy.sharding)
        kernels.append(Stream(numbers * (kept_bytes + wire_bytes), launches=2))
    if gathered.total and number.casts_weights:
        kernels.append(Stream(layers.total * FP8_CAST_BYTES))
    return (Block(name="cast", body=(Work(name="cast weights", phase="forward", kernels=tuple(kernels)),)),) if kernels else ()


def _bucket(strategy: Strategy, number: Numerics, weights: Weights, layer: int) -> Bucket:
    """Return the gradients of a layer as reduction units."""
    calls, expert_calls = (_reductions(strategy, number, parameters) if parameters else 0 for parameters in (weights.dense, weights.expert))
    return Bucket(parameters=weights.dense, layer=layer, n_calls=calls, expert_parameters=weights.expert, expert_calls=expert_calls)


def _reductions(strategy: Strategy, number: Numerics, parameters: float) -> int:
    """Return the calls that reduce a unit: one for flat units, and otherwise as many as the buckets that its gradients fill."""
    return 1 if strategy.gather == "layer" else n_buckets(strategy, parameters * reduced_bytes(strategy.data_parallel, number))
