"""Time of attention in a step: new tokens of prompts, and one new token of each decoding sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from clustersim.hardware.serving_constants import KernelConstants
from clustersim.kernels.inference import kernel_s
from clustersim.serving.batch import Chunk, FloatArray
from clustersim.workload.inference import ELEMENT_BYTES, AttentionWork

TAIL_FRACTION: Final = 0.43
"""Share of the tokens by which the longest sequence exceeds the mean one that are read by few multiprocessors, when others are done.

casys-kaist/LLMServingSim, docs/docs/profiler/skew-alpha-fit.md: four sequences of mean 2,000 take 38 us when equal and 47 us as three of
500 and one of 8,000; 11 us of both are the floor."""


N = TypeVar("N", float, FloatArray)
"""A number, or one for each of some steps."""


@dataclass(frozen=True, slots=True)
class Maths(Generic[N]):
    """Functions of numbers, or of arrays; those of numbers are ten times as fast for one."""

    root: Callable[[N], N]
    larger: Callable[[N, float], N]
    smaller: Callable[[N, float], N]


OF_NUMBERS: Final[Maths[float]] = Maths(math.sqrt, max, min)
OF_ARRAYS: Final[Maths[FloatArray]] = Maths(np.sqrt, np.maximum, np.minimum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCost:
    """Attention of the layers of one kind."""

    n_layers: int
    work: AttentionWork
    kv_bytes: float
    decode: KernelConstants
    prefill: KernelConstants
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float

    def prefill_s(self, chunks: Sequence[Chunk]) -> float:
        """Return the time of the new tokens of prompts in all layers; one kernel of sequences of unequal length.

        A query sees what is cached and what of its chunk is before it: ``n (c + n / 2)`` pairs, or at most a window for each query.
        """
        pairs = moved = 0.0
        for chunk in chunks:
            n, cached = chunk.n_tokens, chunk.n_cached
            seen = n * (cached + n / 2.0)
            if self.work.window is not None:
                seen, cached = min(seen, float(n) * self.work.window), min(cached, self.work.window)
            pairs += seen
            moved += n * self.work.moved_elements * ELEMENT_BYTES + cached * self.work.cache_elements * self.kv_bytes
        one_s = kernel_s(
            self.prefill,
            read_s=0.0,
            compute_s=pairs * self.work.prefill_flops / self.peak_flops_per_s,
            activation_s=moved / self.bandwidth_bytes_per_s,
        )
        return self.n_layers * one_s

    def decode_s(self, n_sequences: int, tokens_each: int, context: N, longest: N, maths: Maths[N]) -> N:
        """Return the time of decoding sequences in all layers, for one step or for each of some.

        Parameters
        ----------
        context, longest
            Cached tokens of all sequences, and of the longest one, in each step.
        maths
            For numbers or for arrays, which give the same bits.
        """
        if self.work.window is not None:
            context = maths.smaller(context, float(n_sequences * self.work.window))
            longest = maths.smaller(longest, float(self.work.window))
        tokens = context + TAIL_FRACTION * maths.larger(longest - context / n_sequences, 0.0)
        read_s = tokens * (self.work.cache_elements * self.kv_bytes / self.bandwidth_bytes_per_s)
        read = read_s * (1.0 / self.decode.bandwidth_fraction)
        compute = tokens * (tokens_each * self.work.decode_flops / (self.peak_flops_per_s * self.decode.peak_fraction))
        read, compute = read * read, compute * compute
        overlapped_s = maths.root(maths.root(read * read + compute * compute))
        one_s = self.decode.floor_s + overlapped_s + self.decode.spread * maths.root(read_s)
        return self.n_layers * one_s
