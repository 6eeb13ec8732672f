"""A model as the strategies see it: what stands before the layers, the layers one by one, and what stands behind them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

from clustersim.program.tasks import Phase, Work
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import local_shape, numerics
from clustersim.strategy.weights import Weights
from clustersim.workload.convolution import Convolution
from clustersim.workload.model import Model, Sublayer
from clustersim.workload.operators import Gemm, GroupedGemm, Kernel, Operator, Product
from clustersim.workload.predictions import Prediction
from clustersim.workload.shapes import LocalShape, Numerics

Operators = tuple[Operator, ...]

ForwardPhase = Literal["forward", "recompute"]

Gradients = Literal["all", "input", "weight"]
"""Gradients that a backward pass computes: both, those of inputs that the stage before waits for, or those of weights put off then."""

PHASES: Final[Mapping[Gradients, Phase]] = MappingProxyType({"all": "backward", "input": "input", "weight": "weight"})


def forward_work(name: str, operators: Sequence[Operator], phase: ForwardPhase = "forward") -> Work:
    """Return some operators forward, one after the other."""
    return Work(name=name, phase=phase, kernels=tuple(kernel for operator in operators for kernel in operator.kernels(phase)))


def backward_work(name: str, operators: Sequence[Operator], gradients: Gradients = "all") -> Work:
    """Return some operators backward, the last one first; weight gradients that cannot be put off go with those of the input."""
    kernels = tuple(kernel for operator in reversed(operators) for kernel in backward_kernels(operator, gradients))
    return Work(name=name, phase=PHASES[gradients], kernels=kernels)


def backward_kernels(operator: Operator, gradients: Gradients) -> tuple[Kernel, ...]:
    """Return the kernels of an operator backward; a weight gradient that cannot be put off goes with that of the input."""
    if gradients == "weight":
        return operator.kernels("weight_gradient") if waits(operator) else ()
    apart = gradients == "input" and waits(operator)
    return operator.kernels("input_gradient") if apart else operator.kernels("input_gradient", "weight_gradient")


def n_layers(plan: Plan) -> int:
    """Return how many layers there are, the ends left out."""
    return plan.model.n_layers


def layer_at(plan: Plan, layer: int, place: int | None = None) -> Operators:
    """Return the operators of one layer on one rank, in execution order; see ``sublayers``."""
    return tuple(operator for part in sublayers(plan, layer, place) for operator in part.operators)


def sublayers(plan: Plan, layer: int, place: int | None = None) -> tuple[Sublayer, ...]:
    """Return the sublayers of one layer on one rank, in execution order.

    Parameters
    ----------
    place
        Of expert parallelism, where some experts get more tokens than others; the mean of all when left out.
    """
    first = first_alike(plan, layer)
    return _sublayers(plan.model, local_shape(plan, first, place), numerics(plan), first)


@lru_cache(maxsize=256)
def _sublayers(model: Model, local: LocalShape, number: Numerics, layer: int) -> tuple[Sublayer, ...]:
    return model.sublayers(layer, local, number)


def front(plan: Plan) -> Operators:
    """Return what the first stage does before the first layer."""
    return plan.model.front(local_shape(plan), numerics(plan))


def back(plan: Plan) -> Operators:
    """Return what the last stage does behind the last layer, losses included."""
    further = (operator for module in predictions_of(plan) for operator in module.operators)
    return (*plan.model.head(local_shape(plan), numerics(plan)), *further)


def predictions_of(plan: Plan) -> tuple[Prediction, ...]:
    """Return the modules that predict a further token; their layers are like the last one, experts and their rows included."""
    return plan.model.predictions(local_shape(plan, plan.model.n_layers - 1), numerics(plan))


def layer_runs(plan: Plan, start: int, stop: int, place: int | None = None) -> tuple[tuple[Operators, int], ...]:
    """Return layers ``start`` to ``stop``, the last one excluded, as (operators, how many equal ones in a row); see ``layer_at``."""
    return tuple((layer_at(plan, first, place), count) for first, count in equal_layers(plan, start, stop))


def equal_layers(plan: Plan, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Return layers ``start`` to ``stop``, the last one excluded, as (first of a row of equal ones, how many they are)."""
    together = (tuple(run) for _, run in groupby(range(start, stop), key=lambda layer: first_alike(plan, layer)))
    return tuple((run[0], len(run)) for run in together)


def first_alike(plan: Plan, layer: int) -> int:
    """Return the first layer of the model that does the same as one."""
    model = plan.model
    if plan.strategy.expert_load.by_layer and model.has_experts(layer):
        return layer
    return _first_alike(model, plan.training.seq_length)[layer]


@lru_cache(maxsize=64)
def _first_alike(model: Model, seq_length: int) -> tuple[int, ...]:
    known: dict[Hashable, int] = {}
    return tuple(known.setdefault(model.likeness(layer, seq_length), layer) for layer in range(model.n_layers))


def parameters_of(operators: Operators) -> float:
    """Return the parameters of some operators on one rank."""
    return fsum(operator.parameters for operator in operators)


def weights_of(operators: Operators) -> Weights:
    """Return the parameters of some operators on one rank, those of experts apart."""
    dense = fsum(operator.parameters for operator in operators if not operator.expert)
    return Weights(dense=dense, expert=fsum(operator.parameters for operator in operators if operator.expert))


def layer_weights(plan: Plan) -> tuple[Weights, ...]:
    """Return the parameters of each layer on one rank."""
    runs = [(weights_of(operators), count) for operators, count in layer_runs(plan, 0, n_layers(plan))]
    return tuple(weights for weights, count in runs for _ in range(count))


def layer_parameters(plan: Plan) -> tuple[float, ...]:
    """Return the parameters of each layer on one rank, in forward order."""
    runs = [(parameters_of(operators), count) for operators, count in layer_runs(plan, 0, n_layers(plan))]
    return tuple(parameters for parameters, count in runs for _ in range(count))


def heaviest_run(parameters: Sequence[float], length: int) -> float:
    """Return the most parameters that so many consecutive layers have together; all of them where there are fewer.

    Examples
    --------
    >>> heaviest_run([1.0, 5.0, 2.0], 2), heaviest_run([1.0, 5.0], 9)
    (7.0, 6.0)
    """
    length = min(length, len(parameters))
    return max((fsum(parameters[start : start + length]) for start in range(len(parameters) - length + 1)), default=0.0)


def waits(operator: Operator) -> bool:
    """Return whether the gradient of an operator's weight can be put off: a product of its own, and not a by-product such as a norm's.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2: what is split are the linear layers.
    """
    return operator.weight_product is not None


def waiting_bytes(operators: Operators) -> float:
    """Return what is kept of a micro-batch for weight gradients that are put off: input, and gradient of the output, of each product."""
    products = ((operator, operator.weight_product) for operator in operators)
    return fsum(operator.saved_bytes + _output_gradient_bytes(product) for operator, product in products if product)


def _output_gradient_bytes(product: Product) -> float:
    match product:
        case Gemm():
            return product.batch * product.k * product.n * product.element_bytes
        case GroupedGemm():
            return sum(product.rows) * product.n * product.element_bytes
        case Convolution():
            return product.batch * product.filters * product.places[0] * product.places[1] * product.element_bytes


def tied_parameters(plan: Plan) -> float:
    """Return the parameters of the logits that are the embedding's, so that a rank with both holds them once."""
    return plan.model.tied_parameters(local_shape(plan))


def layer_input_bytes(plan: Plan, layer: int) -> float:
    """Return what one layer receives of a micro-batch on one rank: what full recomputation keeps."""
    return plan.model.layer_input_bytes(layer, local_shape(plan), numerics(plan))


def boundary_bytes(plan: Plan) -> float:
    """Return the activations that a stage hands to the next, in full; nothing where there is one stage only."""
    if plan.strategy.pp == 1:
        return 0.0
    return local_shape(plan).rows * plan.model.hidden_size * numerics(plan).element_bytes
