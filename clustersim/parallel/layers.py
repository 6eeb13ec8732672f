"""Operators as work of a pass: kernels forward and backward, parameters, and stored activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

from clustersim.parallel.weights import Weights
from clustersim.program.tasks import Phase, Work
from clustersim.workloads.operators import Convolution, Gemm, GroupedGemm, Kernel, Operator, Product

Operators = tuple[Operator, ...]

ForwardPhase = Literal["forward", "recompute"]

Gradients = Literal["all", "input", "weight"]
"""Gradients that a backward pass computes: both, those of inputs that the stage before waits for, or those of weights put off then."""

PHASES: Final[Mapping[Gradients, Phase]] = MappingProxyType({"all": "backward", "input": "input", "weight": "weight"})


def forward_work(name: str, operators: Sequence[Operator]) -> Work:
    """Return some operators forward, in sequence."""
    return Work(name=name, phase="forward", kernels=tuple(kernel for operator in operators for kernel in operator.kernels("forward")))


def backward_work(name: str, operators: Sequence[Operator]) -> Work:
    """Return some operators backward, the last one first."""
    kernels = tuple(kernel for operator in reversed(operators) for kernel in backward_kernels(operator, "all"))
    return Work(name=name, phase="backward", kernels=kernels)


def backward_kernels(operator: Operator, gradients: Gradients) -> tuple[Kernel, ...]:
    """Return the kernels of an operator backward; a weight gradient that cannot be put off goes with that of the input."""
    if gradients == "weight":
        return operator.kernels("weight_gradient") if waits(operator) else ()
    apart = gradients == "input" and waits(operator)
    return operator.kernels("input_gradient") if apart else operator.kernels("input_gradient", "weight_gradient")


def weights_of(operators: Operators) -> Weights:
    """Return the parameters of some operators on one rank, those of experts apart."""
    dense, expert = ([each for each in operators if each.expert is kind] for kind in (False, True))
    return Weights(
        dense=fsum(each.parameters for each in dense),
        expert=fsum(each.parameters for each in expert),
        frozen=fsum(each.frozen for each in dense),
        frozen_expert=fsum(each.frozen for each in expert),
    )


def heaviest_run(parameters: Sequence[float], length: int) -> float:
    """Return the most parameters of a number of consecutive layers; all of them where there are fewer.

    Examples
    --------
    >>> heaviest_run([1.0, 5.0, 2.0], 2), heaviest_run([1.0, 5.0], 9)
    (7.0, 6.0)
    """
    length = min(length, len(parameters))
    return max((fsum(parameters[start : start + length]) for start in range(len(parameters) - length + 1)), default=0.0)


def waits(operator: Operator) -> bool:
    """Return whether the weight gradient of an operator can be delayed: a product of its own, and not a by-product as for a norm.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2: what is split are the linear layers.
    """
    return operator.weight_product is not None


def waiting_bytes(operators: Operators) -> float:
    """Return the activations stored for delayed weight gradients: input and output gradient of each product, in bytes."""
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
