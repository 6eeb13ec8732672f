"""A model as the strategies see it: what stands before the layers, the layers one by one, and what stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

from clustersim.program.tasks import Phase, Work
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, local_shape, numerics, transformer
from clustersim.strategy.weights import Weights
from clustersim.workload.convolution import Convolution
from clustersim.workload.ends import embedding_operators, head_operators
from clustersim.workload.layer import layer_operators
from clustersim.workload.layered import Layered
from clustersim.workload.operators import Gemm, GroupedGemm, Kernel, Operator, Product
from clustersim.workload.predictions import Prediction, prediction
from clustersim.workload.shapes import LocalShape, Numerics
from clustersim.workload.transformer import Transformer

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
    kernels = tuple(kernel for operator in reversed(operators) for kernel in _backward_kernels(operator, gradients))
    return Work(name=name, phase=PHASES[gradients], kernels=kernels)


def _backward_kernels(operator: Operator, gradients: Gradients) -> tuple[Kernel, ...]:
    if gradients == "weight":
        return operator.kernels("weight_gradient") if waits(operator) else ()
    apart = gradients == "input" and waits(operator)
    return operator.kernels("input_gradient") if apart else operator.kernels("input_gradient", "weight_gradient")


def n_layers(plan: Plan) -> int:
    """Return how many layers there are, the ends left out."""
    return plan.model.n_layers


def layer_at(plan: Plan, layer: int, place: int | None = None) -> Operators:
    """Return the operators of one layer on one rank, in execution order.

    Parameters
    ----------
    place
        Of expert parallelism, where some experts get more tokens than others; the mean of all when left out.
    """
    if isinstance(plan.model, Layered):
        return plan.model.layer_operators(layer, plan.training.micro_batch_size, numerics(plan))
    first = first_alike(plan, layer)
    return _operators(plan.model, local_shape(plan, first, place), numerics(plan), first)


@lru_cache(maxsize=256)
def _operators(model: Transformer, local: LocalShape, number: Numerics, layer: int) -> Operators:
    return layer_operators(model, local, number, layer)


def front(plan: Plan) -> Operators:
    """Return what the first stage does before the first layer; nothing where the model is a list of layers."""
    return () if isinstance(plan.model, Layered) else embedding_operators(plan.model, local_shape(plan), numerics(plan))


def back(plan: Plan) -> Operators:
    """Return what the last stage does behind the last layer, losses included; nothing where the model is a list of layers."""
    if isinstance(plan.model, Layered):
        return ()
    further = prediction_of(plan).operators * plan.model.n_mtp if plan.model.n_mtp else ()
    return head_operators(plan.model, local_shape(plan), numerics(plan)) + further


def prediction_of(plan: Plan) -> Prediction:
    """Return one module that predicts a further token; its layer is like the last one, experts and their rows included."""
    model = transformer(plan)
    return prediction(model, local_shape(plan, model.n_layers - 1), numerics(plan))


def layer_runs(plan: Plan, start: int, stop: int, place: int | None = None) -> tuple[tuple[Operators, int], ...]:
    """Return layers ``start`` to ``stop``, the last one excluded, as (operators, how many equal ones in a row); see ``layer_at``."""
    return tuple((layer_at(plan, first, place), count) for first, count in equal_layers(plan, start, stop))


def equal_layers(plan: Plan, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Return layers ``start`` to ``stop``, the last one excluded, as (first of a row of equal ones, how many they are)."""
    if isinstance(plan.model, Layered):
        return _runs(range(start, stop), lambda layer: layer_at(plan, layer))
    if plan.strategy.expert_load.by_layer:
        return _runs(range(start, stop), lambda layer: first_alike(plan, layer))
    return _runs_of_kinds(plan.model, plan.training.seq_length, start, stop)


@lru_cache(maxsize=4096)
def _runs_of_kinds(model: Transformer, seq_length: int, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    return _runs(range(start, stop), lambda layer: _first_of_kind(model, seq_length, layer))


def _runs(layers: range, kind: Callable[[int], object]) -> tuple[tuple[int, int], ...]:
    together = (tuple(run) for _, run in groupby(layers, key=kind))
    return tuple((run[0], len(run)) for run in together)


def first_alike(plan: Plan, layer: int) -> int:
    """Return the first layer that does the same as one: of a transformer the first of its kind."""
    if isinstance(plan.model, Layered):
        same = layer_at(plan, layer)
        return next(other for other in range(layer + 1) if layer_at(plan, other) == same)
    if plan.strategy.expert_load.by_layer and plan.model.layer_kind(layer).experts:
        return layer
    return _first_of_kind(plan.model, plan.training.seq_length, layer)


@lru_cache(maxsize=4096)
def _first_of_kind(model: Transformer, seq_length: int, layer: int) -> int:
    def kind(index: int) -> tuple[bool, bool]:
        """Tell layers apart by what they do: a window that no sequence exceeds does nothing."""
        own = model.layer_kind(index)
        return own.experts, own.windowed and model.window is not None and model.window.tokens < seq_length

    wanted = kind(layer)
    return next(index for index in range(model.n_layers) if kind(index) == wanted)


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


def recomputed_layers(plan: Plan, chunk: ModelChunk) -> int:
    """Return how many layers of a chunk, from its first, full recomputation repeats."""
    if plan.strategy.recompute != "full":
        return 0
    return chunk.n_layers if plan.strategy.recompute_layers is None else min(chunk.n_layers, plan.strategy.recompute_layers)


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
    model = plan.model
    if isinstance(model, Layered) or not (model.tied_embeddings and model.lm_head):
        return 0.0
    return float(local_shape(plan).vocab_size * model.hidden_size)


def layer_input_bytes(plan: Plan, layer: int) -> float:
    """Return what one layer receives of a micro-batch on one rank: what full recomputation keeps."""
    number = numerics(plan)
    if isinstance(plan.model, Layered):
        return plan.model.layer_input_bytes(layer, plan.training.micro_batch_size, number)
    return local_shape(plan).sequence_rows * plan.model.hidden_size * number.element_bytes


def boundary_bytes(plan: Plan) -> float:
    """Return the activations that a stage hands to the next, in full; nothing where there is one stage only."""
    if plan.strategy.pp == 1:
        return 0.0
    return local_shape(plan).rows * transformer(plan).hidden_size * numerics(plan).element_bytes
