"""FLOPs of a step as MFU and HFU count them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.recomputation import recomputation_of, recomputed_layers
from clustersim.parallel.shard import local_model
from clustersim.parallel.stages import model_chunks
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Strategy
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Operator

BACKWARD_FACTOR = 2.0
"""A matrix product has two gradients, each as large as itself."""


def _forward(operators: Iterable[Operator]) -> float:
    return fsum(operator.forward_flops for operator in operators)


def _frozen(operators: Iterable[Operator]) -> float:
    return fsum(operator.frozen_flops for operator in operators)


def _undivided(model: Model, training: Training, strategy: Strategy) -> LocalModel:
    """Return the whole model on one rank, for one sequence."""
    whole = strategy.changed(
        tp=1,
        pp=1,
        cp=1,
        ep=1,
        etp=None,
        sequence_parallel=False,
        virtual_stages=1,
        schedule="1f1b",
        stage_layers=None,
        written=None,
    )
    return local_model(model, training.changed(micro_batch_size=1), whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlops:
    """Matrix FLOPs of one step, forward and backward."""

    model: float
    """FLOPs of the model, without recomputation."""
    masked: float
    """Part of these that a causal mask spares: half of the attention that sees whole sequences."""
    hardware: float
    """FLOPs of the model, and of forward passes that recomputation repeats."""


def step_flops(model: Model, training: Training, strategy: Strategy) -> StepFlops:
    """Return the matrix FLOPs of one step.

    Of those of the model every matrix product of layers, logits and attention counts, attention in full (not halved for a causal mask); the
    backward pass is twice the forward pass, but once for products with frozen weights. Per sequence and for a GPT this is
    ``72 L s h^2 (1 + s / 6h + V / 12 h L)``. A convolution counts like a product, taps on padding included, and the first layer
    too with two gradients, though the replay leaves out that of the model's input.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, appendix A.
    """
    whole, n_sequences = _undivided(model, training, strategy), training.global_batch_size
    runs = whole.runs(range(whole.model.n_layers))
    forward = sum(count * _forward(operators) for operators, count in runs) + _forward(whole.back)
    frozen = sum(count * _frozen(operators) for operators, count in runs) + _frozen(whole.back)
    spared = fsum(count * fsum(operator.masked_flops for operator in operators) for operators, count in runs)
    counted = n_sequences * ((1.0 + BACKWARD_FACTOR) * forward - frozen)
    return StepFlops(
        model=counted,
        masked=n_sequences * (1.0 + BACKWARD_FACTOR) * spared,
        hardware=counted + n_sequences * _repeated_forward(strategy, whole),
    )


def _repeated_forward(strategy: Strategy, whole: LocalModel) -> float:
    """Return the FLOPs of forward passes that recomputation repeats, for one sequence."""
    kind = recomputation_of(strategy)
    # Chunks of one copy of the model have all of its layers together.
    chunks = [chunk for stage in model_chunks(strategy, whole.model.n_layers) for chunk in stage if chunk.way == 0]
    covered = [chunk.layers[: recomputed_layers(strategy, chunk)] for chunk in chunks]
    runs = [run for layers in covered for run in whole.runs(layers)]
    return fsum(count * _forward(kind.repeated(whole, operators)) for operators, count in runs)
