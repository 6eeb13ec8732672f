"""Formats of operands in 8 bits: which numbers share a scale, and the cost of finding and applying it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Scaling = Literal["delayed", "tensor", "row", "block", "mx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Scales of an operand that is cast for a matrix product."""

    shared_by: float = float("inf")
    """Numbers that share a scale; infinite where they are so many that scales take no room."""
    scale_bytes: float = 4.0
    reads: int = 1
    """Reads of the operand before both casts, as it is and transposed, are written."""
    launches: int = 1
    """Kernels of both casts."""

    def cast_bytes(self, plain_bytes: float, operand_bytes: float) -> float:
        """Return the bytes that both casts of one number move, its share of the scales included.

        Examples
        --------
        >>> SCALINGS["delayed"].cast_bytes(2.0, 1.0), SCALINGS["mx"].cast_bytes(2.0, 1.0)
        (4.0, 4.0625)
        """
        return self.reads * plain_bytes + 2.0 * (operand_bytes + self.scale_bytes / self.shared_by)


SCALINGS: Final[Mapping[Scaling, Scales]] = MappingProxyType(
    {
        "delayed": Scales(),
        "tensor": Scales(reads=2, launches=2),
        "row": Scales(reads=2, launches=2),
        "block": Scales(shared_by=128.0),
        "mx": Scales(shared_by=32.0, scale_bytes=1.0, launches=3),
    }
)
"""Recipes of NVIDIA Transformer Engine 2 (``common/recipe``).

Delayed: the scale follows from past maxima, so that one kernel casts and transposes. Tensor (current scaling): a kernel finds the maximum
before. Row: the operand and its transpose have scales of their own rows, each found and applied in one kernel. Block: 128 numbers of a row,
or 128 times 128 of a weight. MX: 32 numbers share a power of two; two more kernels put the scales of either cast in the order of the matrix
units.
"""
