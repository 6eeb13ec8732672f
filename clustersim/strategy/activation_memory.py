"""Activations of one rank: what a micro-batch keeps between its passes, and what a backward pass holds besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from operator import itemgetter
from typing import Final

from clustersim.strategy.layers import (
    Operators,
    back,
    equal_layers,
    front,
    layer_at,
    layer_input_bytes,
    layer_runs,
    waiting_bytes,
)
from clustersim.strategy.plan import Plan
from clustersim.strategy.recomputation import recomputation_of, recomputed_layers
from clustersim.strategy.routing import dispatch, expected_nodes
from clustersim.strategy.shard import ModelChunk, local_shape, numerics
from clustersim.workload.context import exchanged_bytes, kept_keys_bytes
from clustersim.workload.shapes import FP32_BYTES, ContextShare, ExpertShare

BLOCKS_OF_RING: Final = 2
"""Keys and values, or their gradients: one block is computed with while the next one comes in."""


def layer_activation_bytes(plan: Plan, layer: int = 0) -> tuple[float, float]:
    """Return what one layer keeps of a micro-batch until its backward pass, and what it holds while that pass runs.

    The two differ under full recomputation, which keeps the layer's input only, and under selective recomputation, which drops
    scores and probabilities; one layer at a time is whole again.
    """
    return _kept_and_whole(plan, layer, layer_at(plan, layer))


def end_activation_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what embedding and head keep of one micro-batch, as far as a chunk holds them."""
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    return fsum(operator.saved_bytes for operator in ends)


def kept_by_layer(plan: Plan, chunk: ModelChunk, place: int | None = None) -> tuple[float, ...]:
    """Return what each layer of a chunk keeps of one micro-batch."""
    return tuple(kept for kept, _, count in _activations(plan, chunk, place) for _ in range(count))


def fullest_place(plan: Plan, chunks: Sequence[ModelChunk]) -> int | None:
    """Return the place of expert parallelism whose experts get most rows in all layers of some chunks; None where all get as many."""
    model, strategy = plan.model, plan.strategy
    if model.experts is None or strategy.ep == 1 or strategy.expert_load.kind == "balanced":
        return None
    layers = [layer for chunk in chunks for layer in chunk.layers if model.has_experts(layer)]
    received = [sum(each) for each in zip(*(dispatch(plan, layer).received for layer in layers), strict=True)]
    return received.index(max(received)) if received else None


def expert_buffer_bytes(plan: Plan, layer: int, place: int | None = None) -> float:
    """Return the buffers of one exchange of rows between experts: rows that are sent, and rows that are received.

    A row that goes once to each node is sent once to each.
    """
    model = plan.model
    if not model.has_experts(layer):
        return 0.0
    share = local_shape(plan, layer, place).experts
    if share is None or share.n_ranks == 1:
        return 0.0
    return (_sent_rows(plan, share) + share.received_rows) * model.hidden_size * numerics(plan).element_bytes


def context_buffer_bytes(plan: Plan, layer: int) -> float:
    """Return the buffers through which ranks of context parallelism attend over a sequence, in either direction.

    Gathered keys and values are there whole, and so are their gradients; a ring has of each the block that is in use and the one that
    comes in; Ulysses has what it sends and what it receives.
    """
    model, number = plan.model, numerics(plan)
    local = local_shape(plan, layer)
    match local.context:
        case ContextShare(kind="ring"):
            return 2.0 * BLOCKS_OF_RING * kept_keys_bytes(model, local, number)
        case ContextShare(kind="all_gather", degree=degree):
            return 2.0 * degree * kept_keys_bytes(model, local, number)
        case ContextShare() as share:
            return 2.0 * max(exchanged_bytes(model, local, number, share))
        case None:
            return 0.0


def exchange_buffer(plan: Plan, layer: int, place: int | None = None) -> tuple[str, float]:
    """Return the buffers of the exchanges of a layer, with their technique: the larger ones, as its sublayers run one after the other."""
    return max(("context", context_buffer_bytes(plan, layer)), ("experts", expert_buffer_bytes(plan, layer, place)), key=itemgetter(1))


def _sent_rows(plan: Plan, share: ExpertShare) -> float:
    """Return the rows that a rank sends: of each token one for each of its experts, or for each node that holds some of them."""
    strategy, experts = plan.strategy, plan.model.experts
    n_nodes = strategy.ep * strategy.expert_tp // strategy.domain_size
    if experts is None or strategy.dispatch != "per_node" or n_nodes <= 1:
        return share.dispatched_rows
    return share.dispatched_rows / experts.top_k * expected_nodes(n_nodes, experts)


def chunk_weight_bytes(plan: Plan, chunk: ModelChunk, place: int | None = None) -> float:
    """Return what a chunk keeps of one micro-batch from the pass of its input gradient to that of its weight gradients.

    For each product that has a weight, its input and the gradient of its output; nothing is recomputed any more.
    """
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    layers = fsum(count * waiting_bytes(operators) for operators, count in layer_runs(plan, chunk.layers.start, chunk.layers.stop, place))
    return layers + waiting_bytes(ends)


def _activations(plan: Plan, chunk: ModelChunk, place: int | None = None) -> list[tuple[float, float, int]]:
    """Return what layers keep, what they hold while they are whole, and how many such layers there are in a row."""
    first, found = chunk.start, list[tuple[float, float, int]]()
    border = first + recomputed_layers(plan, chunk)
    for start, stop, repeated in ((first, border, True), (border, first + chunk.n_layers, False)):
        layer = start
        for operators, count in layer_runs(plan, start, stop, place):
            kept, whole = _kept_and_whole(plan, layer, operators)
            found.append((kept if repeated else whole, whole, count))
            layer += count
    return found


def _kept_and_whole(plan: Plan, layer: int, operators: Operators) -> tuple[float, float]:
    whole = fsum(operator.saved_bytes for operator in operators)
    return recomputation_of(plan).kept_bytes(plan, operators, layer_input_bytes(plan, layer)), whole


def backward_bytes(plan: Plan, chunk: ModelChunk, place: int | None = None) -> Mapping[str, float]:
    """Return the most that a backward pass holds beside what is kept, by technique: one layer, or the gradient of the logits.

    The layer is whole again, with the buffers of its exchanges.

    That gradient is made in fp32, in a copy of the probabilities, and cast (Megatron-LM, vocabulary-parallel cross entropy); a fused
    kernel writes it as the logits are.
    """
    extra = [whole - kept for kept, whole, count in _activations(plan, chunk, place) for _ in range(count)]
    alike = equal_layers(plan, chunk.layers.start, chunk.layers.stop)
    buffers = [buffer for first, count in alike for buffer in (exchange_buffer(plan, first, place),) * count]
    layers = [{"recomputation": more, owner: size} for more, (owner, size) in zip(extra, buffers, strict=True)]
    replicas = plan.strategy.dp if plan.strategy.data_parallel.single_process else 1
    casts = 0.0 if plan.training.fused_loss else numerics(plan).element_bytes / FP32_BYTES
    loss_bytes = replicas * head_loss_bytes(plan, chunk) * (1.0 + casts)
    return max([*layers, {"loss": loss_bytes}], key=lambda sizes: fsum(sizes.values()))


def head_loss_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what the loss of one replica keeps: the logits in fp32."""
    operators = (*layer_at(plan, chunk.layers.stop - 1), *back(plan)) if chunk.last else ()
    return fsum(operator.saved_bytes for operator in operators if operator.role == "loss")
