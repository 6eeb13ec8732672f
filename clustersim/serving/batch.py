"""The batch of an engine step, its duration, and the interface of a step model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from clustersim.serving.expert_exchange import ExpertExchange

FloatArray = NDArray[np.float64]

TERMS: Final = (
    "projections",
    "elementwise",
    "attention_prefill",
    "attention_decode",
    "experts",
    "collectives",
    "pipeline",
    "head",
    "sampling",
    "host",
)
"""Terms of a step, in the order in which they are added."""


class Chunk(NamedTuple):
    """New tokens of one prompt in a step."""

    n_tokens: int
    n_cached: int
    """Tokens of the same sequence that are in the KV cache already."""


class StepBatch(NamedTuple):
    """Tokens that one engine step computes on one replica."""

    chunks: tuple[Chunk, ...]
    """Prefill chunks."""
    n_decode: int
    """Sequences that decode."""
    context_tokens: int
    """Tokens in the KV cache over all decoding sequences."""
    longest_context: int
    """Tokens in the KV cache of the longest decoding sequence."""
    tokens_per_decode: int = 1
    """Tokens that a decoding sequence computes: one, and the draft tokens that are verified."""

    @property
    def n_prefill_tokens(self) -> int:
        """New tokens of prompts."""
        return sum([chunk.n_tokens for chunk in self.chunks]) if self.chunks else 0


class StepTime(NamedTuple):
    """Duration of an engine step, and its terms, in seconds."""

    total_s: float
    terms: Mapping[str, float]
    """By term, of :data:`TERMS`; what overlaps is not counted twice, so that they sum to the total."""


@dataclass(frozen=True, slots=True)
class ServingLayout:
    """Degrees of parallelism of one replica."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    """Attention data parallelism inside the replica."""
    redundant_experts: int = 0
    """Copies of popular experts beside the experts themselves, by which ranks become even."""
    exchange: ExpertExchange | None = None
    """Exchange of tokens among the ranks of the experts; None where all tokens are gathered on every rank and summed."""
    overlaps_batches: bool = False
    """Whether a step has two halves, one of which computes while the other communicates."""

    @property
    def n_accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp * self.dp

    @property
    def n_together(self) -> int:
        """Ranks of the largest collective."""
        return self.tp * (self.dp if self.exchange is None else 1)


class StepModel(Protocol):
    """Durations of the engine steps of one replica."""

    def step(self, batch: StepBatch) -> StepTime:
        """Return the duration of a step, and its terms."""
        ...

    def step_s(self, batch: StepBatch) -> float:
        """Return the duration of a step: that of ``step``."""
        ...

    def decode_stretch_s(self, batch: StepBatch, n_steps: int) -> FloatArray:
        """Return the duration of each of the next steps, all decode-only, in seconds.

        The context of each sequence grows by one token a step. Bit-identical to as many calls of ``step``.

        Returns
        -------
        ndarray of shape (n_steps,)
        """
        ...
