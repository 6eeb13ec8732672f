"""Calls of layers for tests, in 16-bit numbers, and what their operators move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from clustersim.workloads.kinds.call import LayerCall
from clustersim.workloads.operators import Kernel, Operator
from clustersim.workloads.shapes import Numerics

NUMERICS = Numerics(
    element_bytes=2.0,
    elementwise_bytes=2.0,
    gemm_element_bytes=2.0,
    gradient_bytes=4.0,
    fused_gradient_accumulation=True,
    kernels="fused",
    fused_loss=False,
    attention="unfused",
)
FUSED = LayerCall(samples=4, numerics=NUMERICS)
EAGER = LayerCall(samples=4, numerics=replace(NUMERICS, kernels="eager"))


def moved(kernels: Iterable[Kernel]) -> float:
    """Return the memory traffic of some kernels."""
    return sum(kernel.traffic_bytes for kernel in kernels)


def forward_bytes(operators: Iterable[Operator]) -> float:
    """Return what the forward kernels move."""
    return sum(moved(operator.kernels("forward")) for operator in operators)


def backward_bytes(operators: Iterable[Operator]) -> float:
    """Return what all backward kernels move."""
    return sum(moved(operator.kernels("input_gradient")) + moved(operator.kernels("weight_gradient")) for operator in operators)


def saved_bytes(operators: Iterable[Operator]) -> float:
    """Return what is kept for the backward pass."""
    return sum(operator.saved_bytes for operator in operators)


def parameters(operators: Iterable[Operator]) -> float:
    """Return what is learnt."""
    return sum(operator.parameters for operator in operators)
