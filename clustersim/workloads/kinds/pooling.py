"""Pooling: the largest or the mean of a window."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from clustersim.workloads.convolution import Pair
from clustersim.workloads.kinds.call import LayerCall, Shape
from clustersim.workloads.operators import Operator, Stream

INDEX_BYTES = 8.0
"""PyTorch keeps where each largest number stood, as a 64-bit index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayer:
    """Windows over an image, each of which becomes one number."""

    input: Shape
    kind: Literal["max", "average"]
    places: Pair
    """Rows and columns of the result."""

    @property
    def output(self) -> Shape:
        """As many channels, fewer places."""
        return self.input[0], *self.places

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return one read and one write each way.

        For the largest of each window an eager framework keeps indices; one that fuses reads input and result again.
        """
        taken, given = call.stored_bytes(self.input), call.stored_bytes(self.output)
        forward_bytes = backward_bytes = taken + given
        index_bytes = 0.0
        if self.kind == "max" and call.numerics.kernels == "eager":
            index_bytes = call.samples * prod(self.output) * INDEX_BYTES
            forward_bytes += index_bytes
            # The gradient is scattered into zeros.
            backward_bytes += index_bytes + taken
        elif self.kind == "max":
            backward_bytes += taken + given
        return (
            Operator(
                name=f"{self.kind}_pool",
                phases={"forward": (Stream(forward_bytes),), "input_gradient": (Stream(backward_bytes),) if call.input_gradient else ()},
                saved_bytes=call.kept_input_bytes(self.input) + index_bytes,
            ),
        )
