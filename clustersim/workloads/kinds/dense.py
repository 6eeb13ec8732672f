"""Linear layers, on features or on every token of a sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from clustersim.workloads.kinds.call import LayerCall, Shape
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer:
    """A matrix that turns the last side of the input into ``features``."""

    input: Shape
    features: int
    bias: bool

    @property
    def output(self) -> Shape:
        """The input with another last side."""
        return (*self.input[:-1], self.features)

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the matrix product, one row for each sample or token."""
        rows = call.samples * prod(self.input[:-1])
        shape = LinearShape(
            rows=rows, inputs=self.input[-1], outputs=self.features, bias=self.bias, saved_rows=0 if call.input_kept else rows
        )
        operator = linear("linear", shape, call.numerics)
        return (operator if call.input_gradient else replace(operator, phases={**operator.phases, "input_gradient": ()}),)
