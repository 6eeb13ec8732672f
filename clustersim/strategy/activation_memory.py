"""Activations of one rank: what a micro-batch keeps between its passes, and what a backward pass holds besides."""

from __future__ import annotations

from math import fsum

from clustersim.strategy.alternate import alternate_bytes
from clustersim.strategy.layers import (
    Operators,
    back,
    front,
    layer_at,
    layer_input_bytes,
    layer_runs,
    recomputed_layers,
    waiting_bytes,
)
from clustersim.strategy.plan import Plan
from clustersim.strategy.recompute import kept_bytes
from clustersim.strategy.shard import ModelChunk, numerics
from clustersim.workload.shapes import FP32_BYTES


def layer_activation_bytes(plan: Plan, layer: int = 0) -> tuple[float, float]:
    """Return what one layer keeps of a micro-batch until its backward pass, and what it holds while that pass runs.

    The two differ under full recomputation, which keeps the layer's input only, and under selective recomputation, which drops
    scores and probabilities; one layer at a time is whole again.
    """
    return _kept_and_whole(plan, layer, layer_at(plan, layer))


def chunk_activation_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what a chunk keeps of one micro-batch from its forward to its backward pass."""
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    return fsum(kept * count for kept, _, count in _activations(plan, chunk)) + fsum(operator.saved_bytes for operator in ends)


def chunk_weight_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what a chunk keeps of one micro-batch from the pass of its input gradient to that of its weight gradients.

    For each product that has a weight, its input and the gradient of its output; nothing is recomputed any more.
    """
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    layers = fsum(count * waiting_bytes(operators) for operators, count in layer_runs(plan, chunk.layers.start, chunk.layers.stop))
    return layers + waiting_bytes(ends)


def _activations(plan: Plan, chunk: ModelChunk) -> list[tuple[float, float, int]]:
    """Return what layers keep, what they hold while they are whole, and how many such layers there are in a row."""
    first, found = chunk.start, list[tuple[float, float, int]]()
    border = first + recomputed_layers(plan, chunk)
    for start, stop, repeated in ((first, border, True), (border, first + chunk.n_layers, False)):
        layer = start
        for operators, count in layer_runs(plan, start, stop):
            kept, whole = _kept_and_whole(plan, layer, operators)
            found.append((whole if plan.strategy.recompute == "full" and not repeated else kept, whole, count))
            layer += count
    return found


def _kept_and_whole(plan: Plan, layer: int, operators: Operators) -> tuple[float, float]:
    whole = fsum(operator.saved_bytes for operator in operators)
    match plan.strategy.recompute:
        case "none":
            return whole, whole
        case "selective":
            return kept_bytes(plan, operators), whole
        case "alternate":
            return alternate_bytes(plan, operators, layer_input_bytes(plan, layer)), whole
        case "full":
            return layer_input_bytes(plan, layer), whole


def backward_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return the most that a backward pass holds beside what is kept: one layer that is whole again, or the gradient of the logits.

    That gradient is made in fp32, in a copy of the probabilities, and cast (Megatron-LM, vocabulary-parallel cross entropy); a fused
    kernel writes it as the logits are.
    """
    again = max((whole - kept for kept, whole, _ in _activations(plan, chunk)), default=0.0)
    replicas = plan.strategy.dp if plan.strategy.data_parallel.single_process else 1
    loss_bytes = replicas * _loss_bytes(plan, chunk)
    casts = 0.0 if plan.training.fused_loss else numerics(plan).element_bytes / FP32_BYTES
    return max(again, loss_bytes * (1.0 + casts))


def _loss_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what the loss of one replica keeps: the logits in fp32."""
    operators = (*layer_at(plan, chunk.layers.stop - 1), *back(plan)) if chunk.last else ()
    return fsum(operator.saved_bytes for operator in operators if operator.name == "loss")


def of_others_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what the first accelerator of a single process keeps for the others: all outputs as they came, and their losses."""
    if not plan.strategy.data_parallel.single_process or plan.strategy.dp == 1:
        return 0.0
    loss_bytes, replicas = _loss_bytes(plan, chunk), plan.strategy.dp
    return (replicas - 1) * loss_bytes + replicas * loss_bytes * numerics(plan).element_bytes / FP32_BYTES
