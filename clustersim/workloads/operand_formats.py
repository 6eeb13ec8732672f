"""Formats of operands in 8 and 4 bits: which numbers share a scale, and the cost of finding and applying it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Scaling = Literal["delayed", "tensor", "row", "block", "mx", "nvfp4"]
AmaxGroup = Literal["stage", "tensor", "none"]
"""Ranks that agree on the maxima from which scales follow: all with the same layers, those of one replica among them (tensor and
context parallelism), or each by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Scales of an operand that is cast for a matrix product."""

    element_bytes: float = 1.0
    """One number."""
    shared_by: float = float("inf")
    """Numbers that share a scale; infinite where they are so many that scales take no room."""
    scale_bytes: float = 4.0
    reads: int = 1
    """Reads of the operand before both casts, as it is and transposed, are written."""
    launches: int = 1
    """Kernels of both casts."""
    orders: int = 0
    """Kernels that put scales in the order of the matrix units, for each cast of an operand."""
    casts_groups: bool = False
    """Whether one kernel casts the rows of several products."""
    gathered: bool = True
    """Whether tensor-parallel ranks cast their slices of an operand and gather these."""

    @property
    def transposable(self) -> bool:
        """Whether a cast operand can be transposed as it is, since all of it shares a scale."""
        return self.shared_by == float("inf")

    def cast_bytes(self, plain_bytes: float, operand_bytes: float, own: float = 1.0) -> float:
        """Return the bytes that both casts of one number move, its share of the scales included.

        Parameters
        ----------
        own
            Share of the operand that a rank has before it is gathered. It casts that. What was gathered is transposed if all of it
            shares a scale; otherwise slices are cast both ways.

        Examples
        --------
        >>> SCALINGS["delayed"].cast_bytes(2.0, 1.0), SCALINGS["mx"].cast_bytes(2.0, 1.0)
        (4.0, 4.0625)
        >>> SCALINGS["delayed"].cast_bytes(2.0, 1.0, own=0.25), SCALINGS["mx"].cast_bytes(2.0, 1.0, own=0.25)
        (2.75, 1.015625)
        """
        share = own if self.gathered else 1.0
        both = share * (self.reads * plain_bytes + 2.0 * self.stored_bytes(operand_bytes))
        return both + (2.0 - share) * operand_bytes if share < 1.0 and self.transposable else both

    def stored_bytes(self, operand_bytes: float) -> float:
        """Return the bytes of one number with its share of the scales."""
        return operand_bytes + self.scale_bytes / self.shared_by


SCALINGS: Final[Mapping[Scaling, Scales]] = MappingProxyType(
    {
        "delayed": Scales(casts_groups=True),
        "tensor": Scales(reads=2, launches=4),
        "row": Scales(reads=2, launches=2, gathered=False),
        "block": Scales(shared_by=128.0),
        "mx": Scales(shared_by=32.0, scale_bytes=1.0, orders=3),
        "nvfp4": Scales(element_bytes=0.5, shared_by=16.0, scale_bytes=1.0, reads=3, launches=4, orders=3),
    }
)
"""Recipes of NVIDIA Transformer Engine 2 [1]_, and of rows of torchao [2]_.

Delayed: the scale follows from past maxima, so that one kernel casts and transposes, the rows of all experts too. Tensor (current scaling):
kernels zero a maximum, find it, and make a scale of it. Row: the operand and its transpose have scales of their own rows, each found and
applied in one kernel. Block: 128 numbers of a row, or 128 times 128 of a weight. MX: 32 numbers share a power of two; before each of the
three products a kernel puts the scales of either operand in the order of the matrix units, six for two casts. NVFP4: 16 numbers of 4 bits
share a scale of 8, and all of them another; the transpose goes through a random Hadamard transform. Kernels zero two maxima, find them,
cast the operand, and transform, transpose and cast it.

With sequence parallelism, ranks cast their slices of what a product takes, and gather those, in both libraries; but rows of torchao are
gathered in 16 bits, and cast then.

References
----------
.. [1] NVIDIA, *Transformer Engine*, ``pytorch/csrc/extensions``: ``cast.cpp`` (``multi_tensor_quantize_impl``), ``gemm.cpp``
   (``swizzle_scales_for_gemm``); ``quantizer.cpp`` (``NVFP4Quantizer``); ``common/recipe/current_scaling.cu``;
   ``pytorch/module/layernorm_linear.py`` (``gather_along_first_dim`` with ``input_quantizer``).
.. [2] PyTorch, *torchao*, ``float8``; ``float8_tensor_parallel.py``. Launches of rows are not counted over its source.
"""
