"""The shapes and number formats that one rank works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from clustersim.workloads.operand_formats import AmaxGroup, Scaling

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
