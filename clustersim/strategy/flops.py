"""FLOPs of a step as MFU and HFU count them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import fsum

from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import local_shape, model_chunks, numerics
from clustersim.workload.ends import head_operators
from clustersim.workload.layer import layer_operators
from clustersim.workload.operators import Operator

BACKWARD_FACTOR = 2.0
"""A matrix product has two gradients, each as large as itself."""


def _forward(operators: Iterable[Operator]) -> float:
    return fsum(operator.forward_flops for operator in operators)


def _undivided(plan: Plan) -> Plan:
    strategy = replace(plan.strategy, tp=1, pp=1, sequence_parallel=False, virtual_stages=1, schedule="1f1b")
    return replace(plan, strategy=strategy, training=replace(plan.training, micro_batch_size=1))


def model_flops(plan: Plan) -> float:
    """Return the model's matrix FLOPs in one step, forward and backward, without recomputation.

    Every matrix product of layers, logits and attention counts, attention in full (not halved for a causal mask); the
    backward pass is twice the forward pass. Per sequence and for a GPT this is
    ``72 L s h^2 (1 + s / 6h + V / 12 h L)``.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, appendix A.
    """
    whole = _undivided(plan)
    shapes = whole.model, local_shape(whole), numerics(whole)
    forward = plan.model.n_layers * _forward(layer_operators(*shapes)) + _forward(head_operators(*shapes))
    return plan.training.global_batch_size * (1.0 + BACKWARD_FACTOR) * forward


def hardware_flops(plan: Plan) -> float:
    """Return the model's FLOPs plus those of forward passes that recomputation repeats."""
    whole = _undivided(plan)
    operators = layer_operators(whole.model, local_shape(whole), numerics(whole))
    match plan.strategy.recompute:
        case "none":
            again = 0.0
        case "selective":
            again = _forward(operator for operator in operators if operator.selective)
        case "full":
            again = _forward(operators)
    return model_flops(plan) + plan.training.global_batch_size * plan.model.n_layers * again


def stage_model_flops(plan: Plan, stage: int) -> float:
    """Return the model FLOPs that one rank of a stage does in one step.

    Over all ranks they add up to the model's, unless the layout itself adds work: a padded vocabulary, or key and value heads
    that are repeated because there are fewer of them than ranks.
    """
    shapes = plan.model, local_shape(plan), numerics(plan)
    forward = 0.0
    for chunk in model_chunks(plan)[stage]:
        forward += chunk.n_layers * _forward(layer_operators(*shapes))
        forward += _forward(head_operators(*shapes)) if chunk.last else 0.0
    return plan.n_micro_batches * (1.0 + BACKWARD_FACTOR) * forward
