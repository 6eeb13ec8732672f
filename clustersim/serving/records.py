"""Records of a serving run, and the statistics of its latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustersim.network.in_flight import TICK_S
from clustersim.serving.batch import FloatArray, StepBatch

IntArray = NDArray[np.int64]

_BUFFERED: Final = 1 << 10
_BINS_PER_OCTAVE: Final = 1024
"""Bins of the inter-token histogram in a factor of two: a percentile is off by at most 0.05 %."""
_MOST_SAMPLES: Final = 2048
_MOST_STEPS: Final = 10_000


def ticks(seconds: float) -> int:
    """Return a time in whole ticks.

    Examples
    --------
    >>> ticks(0.25)
    17179869184
    """
    return round(seconds / TICK_S)


def tick_array(seconds: FloatArray) -> IntArray:
    """Return times in whole ticks."""
    return np.rint(seconds / TICK_S).astype(np.int64)  # a tick is a power of two, so that the division is exact


@dataclass(slots=True)
class GapHistogram:
    """Gaps between tokens, each with how many sequences had it: exact mean, percentiles to 0.05 %."""

    n_gaps: int = 0
    total_ticks: int = 0
    _counts: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Sequences by bin, whole numbers."""
    _gaps: list[int] = field(default_factory=list[int])
    _weights: list[int] = field(default_factory=list[int])
    _runs: list[FloatArray] = field(default_factory=list[FloatArray])
    """Gaps of consecutive steps, each with one weight for all."""
    _run_weights: list[int] = field(default_factory=list[int])

    def add(self, gap: int, weight: int) -> None:
        """Count a gap, in ticks, of a number of sequences."""
        self._gaps.append(gap)
        self._weights.append(weight)
        self.n_gaps += weight
        self.total_ticks += gap * weight
        if len(self._gaps) == _BUFFERED:
            self._flush()

    def extend(self, gaps: FloatArray, weight: int, total: int) -> None:
        """Count the gaps of consecutive steps, in whole ticks, each of a number of sequences; ``total`` is their sum."""
        self._runs.append(gaps)
        self._run_weights.append(weight)
        self.n_gaps += weight * len(gaps)
        self.total_ticks += total * weight
        if len(self._runs) == _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        gaps = np.concatenate([np.array(self._gaps, dtype=np.float64), *self._runs])
        weights = np.concatenate([self._weights, np.repeat(self._run_weights, [len(each) for each in self._runs])])
        bins = np.rint(np.log2(gaps.clip(1.0)) * _BINS_PER_OCTAVE).astype(np.int64)
        counts = np.bincount(bins, weights, len(self._counts)).astype(np.float64)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        for buffer in (self._gaps, self._weights, self._runs, self._run_weights):
            buffer.clear()

    def statistics(self) -> LatencyStatistics | None:
        """Return mean and percentiles, in seconds; None where there was no gap."""
        self._flush()
        if not self.n_gaps:
            return None
        ranks: FloatArray = self._counts.cumsum()
        bins = [int(ranks.searchsorted(share * self.n_gaps)) for share in (0.5, 0.9, 0.99)]
        found = [float(np.exp2(each / _BINS_PER_OCTAVE)) * TICK_S for each in bins]
        return LatencyStatistics(mean=self.total_ticks / self.n_gaps * TICK_S, p50=found[0], p90=found[1], p99=found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStatistics:
    """Mean and percentiles of a latency, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


def latency_statistics(values_s: FloatArray) -> LatencyStatistics | None:
    """Return mean and percentiles (linear interpolation) of a latency; None where no request has it."""
    if not len(values_s):
        return None
    p50, p90, p99 = (float(each) for each in np.percentile(values_s, [50, 90, 99]))
    return LatencyStatistics(mean=float(np.mean(values_s)), p50=p50, p90=p90, p99=p99)


@dataclass(slots=True)
class StepTerms:
    """Sums of the terms of steps of one kind, from a sample of them that thins out as they get more."""

    n_steps: int = 0
    busy_ticks: int = 0
    _next: int = 0
    _weights: dict[str, float] = field(default_factory=dict[str, float])

    def wanted(self, n_steps: int) -> list[tuple[int, int]]:
        """Count further steps, and return those that belong to the sample, from zero, each with its weight."""
        first = self.n_steps
        end = self.n_steps = first + n_steps
        found: list[tuple[int, int]] = []
        while self._next < end:
            weight = 1 + self._next // 256
            found.append((self._next - first, weight))
            self._next += weight
        return found

    def add(self, terms: Mapping[str, float], weight: int) -> None:
        """Add the terms of a step of the sample, in seconds."""
        sums = self._weights
        for term, value in terms.items():
            sums[term] = sums.get(term, 0.0) + weight * value

    def seconds(self) -> dict[str, float]:
        """Return the terms summed over all steps; together they are the time that the steps took."""
        whole = sum(self._weights.values())
        scale = self.busy_ticks * TICK_S / whole if whole else 0.0
        return {term: value * scale for term, value in self._weights.items()}


class StepRecord(NamedTuple):
    """A step, or a stretch of steps that only decode."""

    replica: int
    start: int
    """Tick."""
    end: int
    n_steps: int
    n_prefill_tokens: int
    n_decode: int
    n_waiting: int
    n_used_blocks: int


@dataclass(slots=True)
class EngineStepLog:
    """Account of the steps of all replicas of one kind; sums are exact integers."""

    gaps: GapHistogram = field(default_factory=GapHistogram)
    mixed: StepTerms = field(default_factory=StepTerms)
    """Terms of the steps with prompt chunks."""
    decode: StepTerms = field(default_factory=StepTerms)
    """Terms of the steps without prompt chunks."""
    n_sequences: int = 0
    """Summed over steps."""
    n_tokens: int = 0
    """Computed, summed over steps."""
    n_prefill_tokens: int = 0
    graph_tokens: int = 0
    """Tokens of a replica's largest CUDA graph."""
    n_without_graphs: int = 0
    """Steps without prompt chunks that are larger than that."""
    first: list[StepRecord] = field(default_factory=list[StepRecord])
    """The first steps one by one, for a trace."""
    samples: list[StepRecord] = field(default_factory=list[StepRecord])
    """Steps at about equal distances in time, for curves."""
    _width: int = 0
    _next: int = 0

    @property
    def n_steps(self) -> int:
        """Engine steps of all replicas."""
        return self.mixed.n_steps + self.decode.n_steps

    @property
    def busy_ticks(self) -> int:
        """Time in steps, summed over replicas."""
        return self.mixed.busy_ticks + self.decode.busy_ticks

    def count(self, batch: StepBatch, n_prefill_tokens: int, n_steps: int, busy_ticks: int) -> None:
        """Count a step, or a stretch."""
        self.n_sequences += (batch.n_decode + len(batch.chunks)) * n_steps
        self.n_tokens += (n_prefill_tokens + batch.n_decode * batch.tokens_per_decode) * n_steps
        self.n_prefill_tokens += n_prefill_tokens
        kind = self.mixed if n_prefill_tokens else self.decode
        if not n_prefill_tokens and batch.n_decode * batch.tokens_per_decode > self.graph_tokens:
            self.n_without_graphs += n_steps
        kind.busy_ticks += busy_ticks

    def wants(self, end: int) -> bool:
        """Return whether a step that ends at a tick is kept."""
        return end >= self._next or len(self.first) < _MOST_STEPS

    def keep(self, record: StepRecord) -> None:
        """Keep a step, or a stretch, for a trace or for curves."""
        if len(self.first) < _MOST_STEPS:
            self.first.append(record)
        if record.end >= self._next:
            self.samples.append(record)
            if len(self.samples) > _MOST_SAMPLES:
                self.samples = self.samples[::2]
                self._width = max(2 * self._width, record.end // _MOST_SAMPLES)
            self._next = record.end + self._width


@dataclass(slots=True)
class RequestLog:
    """Times of every request, in ticks; negative where it did not happen."""

    sent: IntArray
    first_token: IntArray
    done: IntArray
    refused: list[int] = field(default_factory=list[int])
    """Requests that are too long for the model or, even alone, for the KV cache."""

    @classmethod
    def of(cls, n_requests: int) -> RequestLog:
        """Return a log in which nothing has happened."""
        sent, first_token, done = (np.full(n_requests, -1, dtype=np.int64) for _ in range(3))
        return cls(sent, first_token, done)
