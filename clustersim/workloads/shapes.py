"""The shapes and number formats that one rank works with, and documents packed into sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist
from types import MappingProxyType
from typing import Final, Literal, Protocol

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


FP32_BYTES: Final = 4.0

AttentionKind = Literal["flash", "flash_4", "flash_3", "flash_2", "flash_1", "unfused"]
"""Fused kernels by generation, ``flash`` the best that an accelerator has; or separate kernels that write the scores to memory."""


ContextKind = Literal["ring", "all_gather", "ulysses"]
"""Method by which ranks that each have a part of every sequence attend over all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextShare:
    """Among how many ranks context parallelism divides each sequence, and how they attend over all of it."""

    degree: int
    kind: ContextKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShare:
    """The experts that one rank holds, and the rows that it sends and receives in one micro-batch."""

    rows: tuple[int, ...]
    """Token rows that each expert of this rank processes, summed over the ranks that send them."""
    intermediate_size: int
    """Width of an expert on this rank."""
    dispatched_rows: int
    """Rows that this rank sends out: its tokens, once for each expert that they go to."""
    n_ranks: int = 1
    """Ranks that the experts are divided among."""
    counts_first: bool = False
    """True where ranks tell each other how many rows they send before an all-to-all."""
    fixed_rows: bool = False
    """True where all experts are filled to their capacity, so that hosts know their rows and do not wait for counts."""

    @property
    def n_local(self) -> int:
        """Experts on this rank."""
        return len(self.rows)

    @property
    def received_rows(self) -> int:
        """Rows that the experts of this rank process together."""
        return sum(self.rows)


def balanced_rows(total: int, n_experts: int) -> tuple[int, ...]:
    """Return a number of rows divided among experts as evenly as possible.

    Examples
    --------
    >>> balanced_rows(10, 4)
    (3, 3, 2, 2)
    """
    each, more = divmod(total, n_experts)
    return (each + 1,) * more + (each,) * (n_experts - more)


class HeadWidths(Protocol):
    """Widths of the heads of attention."""

    @property
    def head_dim(self) -> int:
        """Width of a head of queries and keys."""
        ...

    @property
    def value_dim(self) -> int:
        """Width of a head of values."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Lengths of the documents of packed sequences, in tokens: of the document that a token is in."""

    mean: float
    busiest: float
    """Length on the replica with most work, for which the others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShape:
    """Shape of one rank's part of a micro-batch and of a layer, after every kind of splitting."""

    batch: int
    """Sequences in the micro-batch."""
    seq_length: int
    """Tokens of a sequence that this rank has."""
    sequence_rows: int
    """Rows of norm, dropout and residual work: all tokens, or their share under sequence parallelism."""
    n_heads: int
    n_kv_heads: int
    intermediate_size: int
    vocab_size: int
    scored_tokens: int | None = None
    """Tokens of a sequence that the output head scores; None for all."""
    experts: ExpertShare | None = None
    """Share of this rank in a layer's experts; None for a model without them."""
    shared_size: int = 0
    """Width of the shared experts on this rank."""
    context: ContextShare | None = None
    """Context-parallel group, or None without context parallelism."""
    packed: Packed | None = None
    """Documents that the sequences consist of; None where one fills a sequence."""

    @property
    def rows(self) -> int:
        """Rows of the matrix products: tokens of the micro-batch."""
        return self.batch * self.seq_length

    @property
    def own_keys(self) -> int:
        """Keys of this rank that a token attends to at most: those of its part of a sequence, or of a document."""
        return self._keys(self.seq_length, self.context.degree if self.context else 1)

    @property
    def all_keys(self) -> int:
        """The same of all ranks that have a part of the sequence."""
        return self._keys(self.seq_length * (self.context.degree if self.context else 1), 1)

    def _keys(self, seq_length: int, n_ranks: int) -> int:
        return seq_length if self.packed is None else max(1, min(seq_length, round(self.packed.busiest / n_ranks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Bytes of each kind of number, and how kernels are written."""

    element_bytes: float
    """One working weight, or one result of a matrix product."""
    elementwise_bytes: float
    """One activation between the products, which mixed precision may leave in fp32."""
    gemm_element_bytes: float
    """One operand of a matrix product; 1 for fp8."""
    scaling: Scaling = "delayed"
    """Scales of operands in fp8."""
    amax_group: AmaxGroup = "none"
    """Ranks that agree on past maxima."""
    gradient_bytes: float
    """One accumulated weight gradient."""
    fused_gradient_accumulation: bool
    gradient_passes: int = 0
    """Reads and writes of a weight gradient per micro-batch before accumulation, where it is clipped separately."""
    kernels: Literal["fused", "eager"]
    fused_loss: bool
    """One kernel in each direction computes the cross entropy from the logits."""
    loss_in_place: bool = False
    """The gradient of the logits overwrites the probabilities; otherwise it is a separate tensor."""
    grouped_experts: bool = True
    """The products of all experts of a rank run concurrently; otherwise one expert follows the other."""
    fused_experts: bool = False
    """One kernel computes them, with biases, activation, scores and casts, and rows are sorted on their way."""
    router_padding: bool = False
    """The router pads rows of experts as products in fp8 take them; otherwise they are copied."""
    loss_metrics: int = 0
    """Further cross entropies of the same logits, without gradient."""
    attention: AttentionKind
    transposes_images: bool = False
    """True where images are stored channel by channel, and matrix units take them pixel by pixel."""

    @property
    def casts_weights(self) -> bool:
        """Whether products read weights in a narrower format than the stored one, as in fp8."""
        return self.gemm_element_bytes < self.element_bytes


COUNTING: Final = Numerics(
    element_bytes=2.0,
    elementwise_bytes=2.0,
    gemm_element_bytes=2.0,
    gradient_bytes=4.0,
    fused_gradient_accumulation=True,
    kernels="fused",
    fused_loss=True,
    attention="flash",
)
"""Numbers for counts and shapes of products, which do not depend on them; what stands between products is fused."""


NORMAL: Final = NormalDist()
NORMAL_P90: Final = 1.2815515655446004
"""Quantile of a standard normal variable that nine of ten do not exceed."""


def lognormal_sigma(mean: float, p90: float) -> float:
    """Return the standard deviation of the logarithm of a lognormal length, from ``ln(p90 / mean) = z sigma - sigma^2 / 2``.

    The right side is at most ``z^2 / 2``: with that the p90 comes as near as it can. Of two spreads that fit, the smaller is taken.
    """
    return NORMAL_P90 - sqrt(max(NORMAL_P90**2 - 2.0 * log(p90 / mean), 0.0))


def largest_p90(mean: float) -> float:
    """Return the largest p90 that goes with a mean: 2.27 times it."""
    return mean * exp(NORMAL_P90**2 / 2.0)


@dataclass(frozen=True, slots=True)
class Documents:
    """Lengths of documents in tokens: all alike, or lognormal with a mean and the length that nine of ten do not exceed."""

    mean: float
    p90: float | None = None

    def seen(self, longest: int) -> float:
        """Return the mean length of the document that a token is in, where longer ones are cut: mean square over mean."""
        return self._moment(2, longest) / self._moment(1, longest)

    def spread(self, longest: int, tokens: float) -> float:
        """Return the standard deviation of the work of attention of so many tokens, relative to its mean.

        The sum of squares over documents that fill a number of tokens varies as ``l^2 - seen l`` does for each of them.
        """
        first, second, third, fourth = (self._moment(power, longest) for power in (1, 2, 3, 4))
        seen = second / first
        return sqrt(max(0.0, fourth - 2.0 * seen * third + seen**2 * second) * first / tokens) / second

    def _moment(self, power: int, longest: int) -> float:
        """Return the mean of a power of the length, at most ``longest``."""
        sigma = 0.0 if self.p90 is None else lognormal_sigma(self.mean, self.p90)
        if sigma == 0.0:
            return min(self.mean, float(longest)) ** power
        middle = log(self.mean) - sigma * sigma / 2.0
        at = (log(longest) - middle) / sigma
        shorter = exp(power * middle + (power * sigma) ** 2 / 2.0) * NORMAL.cdf(at - power * sigma)
        return shorter + float(longest) ** power * (1.0 - NORMAL.cdf(at))
