"""Time of attention in a step, and the other terms of a step that do not grow with each decoded token."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import KernelConstants
from clustersim.kernels.kernel_model import kernel_s
from clustersim.serving.batch import Chunk, FloatArray
from clustersim.workloads.inference import AttentionWork

TAIL_FRACTION: Final = 0.43
"""Share of the tokens by which the longest sequence exceeds the mean one that are read by few multiprocessors, when others are done.

casys-kaist/LLMServingSim, docs/docs/profiler/skew-alpha-fit.md: four sequences of mean 2,000 take 38 us when equal and 47 us as three of
500 and one of 8,000; 11 us of both are the floor."""

PROMPT_TILE_ROWS: Final = 96
"""Query rows that a prompt kernel of FlashAttention 2 computes for a decoding sequence, which has one.

Its tiles have 64 or 128 rows. Fitted to attention of 16 to 128 sequences beside a prompt on RTX 4090 (casys-kaist/LLMServingSim,
profiler/perf/RTX4090, attention.csv), where 64 sequences of 1,024 tokens take 333 us alone and 633 to 815 us more beside a prompt:
80 to 104 rows at the rate of prompts."""


def prompt_tile_rows(accelerator: Accelerator, split_attention: Mapping[str, Collection[int]]) -> int:
    """Return the query rows that are computed for each decoding sequence in a step with prompts; 0 where decoding has its own kernel.

    One kernel of FlashAttention 2 for a whole step neither divides the cache of a sequence among multiprocessors nor puts the heads of a
    group in one tile. The mapping is that of :class:`~clustersim.serving.engines.EngineConstants`.
    """
    if accelerator.vendor not in split_attention:
        return 0
    own = accelerator.compute_capability
    capability = calibration_for(accelerator).network.library.compute_capability if own is None else own
    return 0 if int(capability) in split_attention[accelerator.vendor] else PROMPT_TILE_ROWS


N = TypeVar("N", float, FloatArray)
"""A number, or one for each of some steps."""


@dataclass(frozen=True, slots=True)
class Maths(Generic[N]):
    """Functions of numbers, or of arrays; those of numbers are ten times as fast for one."""

    root: Callable[[N], N]
    larger: Callable[[N, N | float], N]
    smaller: Callable[[N, float], N]


OF_NUMBERS: Final[Maths[float]] = Maths(math.sqrt, max, min)
OF_ARRAYS: Final[Maths[FloatArray]] = Maths(np.sqrt, np.maximum, np.minimum)


@dataclass(frozen=True, slots=True)
class DecodeLaw(Generic[N]):
    """Time of attention of decoding sequences by the tokens in their caches: a floor, a slope, and a share of the root."""

    window: int | None
    floor_s: N
    per_token_s: N
    per_root_token_s: N

    def seconds(self, n_sequences: int, context: N, excess: float, maths: Maths[N]) -> N:
        """Return the time for one step, or for each of some.

        Parameters
        ----------
        context
            Cached tokens of all sequences in each step.
        excess
            Tokens by which the longest sequence exceeds the mean one, the same in every step of a stretch.
        maths
            For numbers or for arrays, which give the same bits.
        """
        if self.window is None:
            tokens = context + TAIL_FRACTION * excess
        else:
            longest = maths.smaller(context / n_sequences + excess, float(self.window))
            context = maths.smaller(context, float(n_sequences * self.window))
            tokens = context + TAIL_FRACTION * maths.larger(longest - context / n_sequences, 0.0)
        return self.floor_s + self.per_token_s * tokens + self.per_root_token_s * maths.root(tokens)


class BatchTerms(NamedTuple, Generic[N]):
    """Terms of a step that do not depend on the context of decoding sequences, in seconds."""

    terms: tuple[float, ...]
    """All but decode attention, as the step model orders them; zero for one that is left out."""
    added_s: N
    """Sum of those that decode attention adds to."""
    shared_s: float
    """Communication that runs beside the other half of a batch, and what is beside neither."""
    least_s: N
    """Least time of the step: that communication, or the host's launches of kernels and its scheduling beside the accelerator; zero where
    the sum is longer by itself."""
    host_s: N
    """Time in which the host schedules while the accelerator waits."""
    laws: tuple[DecodeLaw[N], ...]
    """Decode attention of layers of each window."""

    def in_arrays(self: BatchTerms[float]) -> BatchTerms[FloatArray]:
        """Return the same with arrays without dimensions: arithmetic of arrays takes three fifths of the time with them."""
        terms, added_s, shared_s, least_s, host_s, laws = self
        in_arrays = [DecodeLaw(each.window, *map(np.array, (each.floor_s, each.per_token_s, each.per_root_token_s))) for each in laws]
        return BatchTerms(terms, np.array(added_s), shared_s, np.array(least_s), np.array(host_s), tuple(in_arrays))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCost:
    """Attention of the layers of one kind."""

    n_layers: int
    work: AttentionWork
    query_bytes: float
    """Bytes that a query of a prompt reads and writes."""
    cached_bytes: float
    """Bytes of a token in the cache of one layer."""
    decode: KernelConstants
    prefill: KernelConstants
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float

    def prefill_s(self, chunks: Sequence[Chunk]) -> float:
        """Return the time of the new tokens of prompts in all layers; one kernel of sequences of unequal length.

        A query sees what is cached and what of its chunk is before it: ``n (c + n / 2)`` pairs, or at most a window for each query.
        """
        pairs, moved, window = 0.0, 0.0, self.work.window
        for n, cached in chunks:
            seen = n * (cached + n / 2.0)
            if window is not None:
                seen, cached = min(seen, float(n) * window), min(cached, window)  # noqa: PLW2901 - as many of them as are seen
            pairs += seen
            moved += n * self.query_bytes + cached * self.cached_bytes
        one_s = kernel_s(
            self.prefill,
            read_s=0.0,
            compute_s=pairs * self.work.prefill_flops / self.peak_flops_per_s,
            activation_s=moved / self.bandwidth_bytes_per_s,
        )
        return self.n_layers * one_s

    def decode_law(self, tokens_each: int, tile_rows: int = 0) -> DecodeLaw[float]:
        """Return the time law of decode for sequences with a number of tokens each per step, over all layers.

        Reading and computing both grow with the cached tokens, so that their overlap does too.

        Parameters
        ----------
        tile_rows
            Query rows that the prompt kernel computes for each sequence, where decoding sequences share it with prompts; 0 elsewhere.
        """
        read_s = self.cached_bytes / self.bandwidth_bytes_per_s
        if self.work.latent:
            tile_rows = 0
        compute_s = max(tokens_each, tile_rows) * self.work.decode_flops / self.peak_flops_per_s
        peak_fraction = self.prefill.peak_fraction if tile_rows else self.decode.peak_fraction
        overlapped_s = math.hypot((read_s / self.decode.bandwidth_fraction) ** 2, (compute_s / peak_fraction) ** 2) ** 0.5
        return DecodeLaw(
            window=self.work.window,
            floor_s=self.n_layers * self.decode.floor_s,
            per_token_s=self.n_layers * overlapped_s,
            per_root_token_s=self.n_layers * self.decode.spread * math.sqrt(read_s),
        )
