"""Peak memory of one rank of each stage, by what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType
from typing import Final

from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules import stage_orders
from clustersim.strategy.schedules.order import peak_in_flight
from clustersim.strategy.shard import ELEMENT_BYTES, ModelChunk, local_shape, model_chunks, numerics
from clustersim.workload.ends import embedding_operators, head_operators
from clustersim.workload.layer import layer_operators
from clustersim.workload.operators import Operator
from clustersim.workload.shapes import FP32_BYTES

OPTIMIZER_STATES: Final[Mapping[str, int]] = MappingProxyType({"adam": 2, "momentum": 1, "sgd": 0})
"""fp32 numbers kept for each parameter, besides the fp32 master copy of a 16-bit weight."""

FRAMEWORK_BYTES: Final = 1.5e9
"""CUDA context, libraries, and communication buffers of NCCL: an assumption, between the 1 and 2 GB that users of PyTorch see
on an idle process with a few communicators."""


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


def _count(operators: tuple[Operator, ...]) -> float:
    return fsum(operator.parameters for operator in operators)


def chunk_parameters(plan: Plan, chunk: ModelChunk) -> float:
    """Return the parameters that one rank holds of a chunk, a tied head on another stage than the embedding counted there too."""
    shapes = plan.model, local_shape(plan), numerics(plan)
    total = chunk.n_layers * _count(layer_operators(*shapes))
    if chunk.first:
        total += _count(embedding_operators(*shapes))
    if chunk.last:
        head = _count(head_operators(*shapes))
        shared = plan.model.tied_embeddings and chunk.first
        total += head - (shapes[1].vocab_size * plan.model.hidden_size if shared and plan.model.lm_head else 0)
    return total


def stage_parameters(plan: Plan, stage: int) -> float:
    """Return the parameters that one rank of a stage holds."""
    return fsum(chunk_parameters(plan, chunk) for chunk in model_chunks(plan)[stage])


def layer_activation_bytes(plan: Plan) -> tuple[float, float]:
    """Return what one layer keeps of a micro-batch until its backward pass, and what it holds while that pass runs.

    The two differ under full recomputation, which keeps the layer's input only, and under selective recomputation, which drops
    scores and probabilities; one layer at a time is whole again.
    """
    shapes = plan.model, local_shape(plan), numerics(plan)
    operators = layer_operators(*shapes)
    whole = fsum(operator.saved_bytes for operator in operators)
    match plan.strategy.recompute:
        case "none":
            return whole, whole
        case "selective":
            return whole - fsum(operator.selective_bytes for operator in operators), whole
        case "full":
            return shapes[1].sequence_rows * plan.model.hidden_size * shapes[2].element_bytes, whole


def chunk_activation_bytes(plan: Plan, chunk: ModelChunk) -> float:
    """Return what a chunk keeps of one micro-batch from its forward to its backward pass."""
    shapes = plan.model, local_shape(plan), numerics(plan)
    kept, _ = layer_activation_bytes(plan)
    ends = (embedding_operators(*shapes) if chunk.first else ()) + (head_operators(*shapes) if chunk.last else ())
    return chunk.n_layers * kept + fsum(operator.saved_bytes for operator in ends)


def optimizer_bytes_per_parameter(plan: Plan) -> float:
    """Return optimizer state for each parameter: fp32 moments, and an fp32 master copy where weights are narrower.

    Adam with 16-bit weights keeps 4 + 4 + 4 = 12 bytes.
    """
    master = FP32_BYTES if ELEMENT_BYTES[plan.training.precision] < FP32_BYTES else 0.0
    return master + OPTIMIZER_STATES[plan.training.optimizer] * FP32_BYTES


def stage_memory(plan: Plan, stage: int) -> StageHolds:
    """Return the peak memory of one rank of a stage.

    ZeRO divides optimizer state (1), gradients (2) and parameters (3) by the data-parallel degree; with 3, two gathered layers are
    in use at a time. Parameter servers keep all optimizer state. Activations are those of the micro-batches that the schedule keeps in
    flight.
    """
    strategy, number = plan.strategy, numerics(plan)
    parameters = stage_parameters(plan, stage)
    chunks = model_chunks(plan)[stage]
    order = stage_orders(strategy.schedule, strategy.pp, plan.n_micro_batches, strategy.virtual_stages)[stage]
    kept, whole = layer_activation_bytes(plan)
    in_flight = peak_in_flight(order, [chunk_activation_bytes(plan, chunk) for chunk in chunks])
    shards = strategy.dp * strategy.cp
    layer_bytes = _count(layer_operators(plan.model, local_shape(plan), number)) * number.element_bytes
    gathered = 2.0 * layer_bytes if strategy.zero_stage == 3 else 0.0
    states_bytes = 0.0 if strategy.data_parallel.service else optimizer_bytes_per_parameter(plan)
    return StageHolds(
        parameters_bytes=parameters * number.element_bytes / (shards if strategy.zero_stage == 3 else 1),
        gradients_bytes=parameters * number.gradient_bytes / (shards if strategy.zero_stage >= 2 else 1),
        optimizer_bytes=parameters * states_bytes / (shards if strategy.zero_stage >= 1 else 1),
        activations_bytes=in_flight + whole - kept,
        buffers_bytes=FRAMEWORK_BYTES + gathered,
    )
