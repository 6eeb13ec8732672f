"""Common parts of all kinds of layers: shapes, and the call of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import Numerics

Shape = tuple[int, ...]
"""Shape of one sample: channels, height and width of an image; tokens and features of a sequence; features; or tokens not yet embedded."""

IMAGE_SIDES = 3
SEQUENCE_SIDES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall:
    """Call of a layer: number of samples, number formats, and properties of its input."""

    samples: int
    numerics: Numerics
    input_gradient: bool = True
    """False where nothing before the layer has parameters: the gradient of its input is then not needed."""
    input_kept: bool = False
    """True where another layer stores the same input for its backward pass."""

    def stored_bytes(self, shape: Shape) -> float:
        """Return the bytes of one tensor of activations."""
        return self.samples * prod(shape) * self.numerics.element_bytes

    def kept_input_bytes(self, shape: Shape) -> float:
        """Return what keeping the input costs: nothing where another layer does."""
        return 0.0 if self.input_kept else self.stored_bytes(shape)


class Layer(Protocol):
    """One layer of a model with known shapes."""

    @property
    def output(self) -> Shape:
        """Shape of what one sample becomes."""
        ...

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the operators of the layer, in execution order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLayer:
    """A layer that knows its input, and by default keeps its shape."""

    input: Shape

    @property
    def output(self) -> Shape:
        """Shape of what one sample becomes."""
        return self.input


def chain(layers: Sequence[Layer], call: LayerCall) -> tuple[Operator, ...]:
    """Return the operators of layers that follow each other.

    Up to the first that has parameters, none needs the gradient of its input where the first of all does not.
    """
    operators: list[Operator] = []
    for layer in layers:
        own = layer.operators(call)
        operators += own
        if own:
            call = replace(call, input_gradient=call.input_gradient or has_parameters(own), input_kept=False)
    return tuple(operators)


def has_parameters(operators: Iterable[Operator]) -> bool:
    """Return whether any of some operators learns."""
    return any(operator.parameters for operator in operators)
