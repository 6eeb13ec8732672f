"""The kernel of a convolution: one of the three products that a convolution over images needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pair = tuple[int, int]
"""Numbers for rows and columns."""

Product = Literal["forward", "input_gradient", "weight_gradient"]


def reach(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return how many places a window takes along one side of an image; less than 1 where it does not fit.

    Examples
    --------
    >>> reach(224, kernel=7, stride=2, padding=3)
    112
    """
    return (size + 2 * padding - kernel) // stride + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """``batch`` images of ``channels`` x ``height`` x ``width``, and ``filters`` of ``kernel``; also either gradient of it.

    All three products have as many FLOPs: the forward pass, the gradient of the input, and that of the filters.
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    groups: int = 1
    """Parts into which channels and filters fall; a filter sees the channels of its part only."""
    product: Product = "forward"
    element_bytes: float = 2.0
    output_bytes: float = 2.0
    """Bytes of one element of the result."""
    accumulates: bool = False
    """True where the result is added to memory, which is then read too."""

    @property
    def places(self) -> Pair:
        """Rows and columns of the forward result."""
        sides = zip((self.height, self.width), self.kernel, self.stride, self.padding, strict=True)
        rows, columns = (reach(*side) for side in sides)
        return rows, columns

    @property
    def depth(self) -> int:
        """Multiply-adds of one element of the forward result."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply-add counted as two, taps on padding included."""
        return 2.0 * self._results * self.depth

    @property
    def traffic_bytes(self) -> float:
        """Least memory traffic: each operand once, the result once or, where it is added, twice."""
        images = float(self.batch * self.channels * self.height * self.width)
        weights = float(self.filters * self.depth)
        match self.product:
            case "forward":
                operands, result = images + weights, self._results
            case "input_gradient":
                operands, result = self._results + weights, images
            case "weight_gradient":
                operands, result = images + self._results, weights
        return operands * self.element_bytes + result * self.output_bytes * (2 if self.accumulates else 1)

    @property
    def _results(self) -> float:
        rows, columns = self.places
        return float(self.batch * self.filters * rows * columns)
