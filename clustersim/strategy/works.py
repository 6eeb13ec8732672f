"""Operators as work: forward, and backward in the two flavours that schedules tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from clustersim.program.tasks import Phase, Work
from clustersim.strategy.layers import waits
from clustersim.workload.operators import Kernel, Operator

Gradients = Literal["all", "input", "weight"]
"""What a backward pass computes: both gradients, those that the stage before waits for, or what was put off then."""

PHASES: Final[Mapping[Gradients, Phase]] = MappingProxyType({"all": "backward", "input": "input", "weight": "weight"})


def forward_work(name: str, operators: Sequence[Operator], phase: Phase = "forward") -> Work:
    """Return some operators forward, one after the other."""
    return Work(name=name, phase=phase, kernels=tuple(kernel for operator in operators for kernel in operator.forward))


def backward_work(name: str, operators: Sequence[Operator], gradients: Gradients = "all") -> Work:
    """Return some operators backward, the last one first; weight gradients that cannot be put off go with those of the input."""
    kernels = tuple(kernel for operator in reversed(operators) for kernel in _backward_kernels(operator, gradients))
    return Work(name=name, phase=PHASES[gradients], kernels=kernels)


def _backward_kernels(operator: Operator, gradients: Gradients) -> tuple[Kernel, ...]:
    if gradients == "weight":
        return operator.backward_weight if waits(operator) else ()
    apart = gradients == "input" and waits(operator)
    return operator.backward_input if apart else (*operator.backward_input, *operator.backward_weight)
