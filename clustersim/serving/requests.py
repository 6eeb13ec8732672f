"""The requests of a run: when they are sent, how long they are, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from clustersim.errors import DomainError
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import IntArray
from clustersim.workloads.shapes import largest_p90, lognormal_sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """All requests of a run, in the order in which they are sent."""

    input_tokens: IntArray
    output_tokens: IntArray
    arrival_s: FloatArray | None
    """When each is sent; None where a client sends the next as one is answered."""
    concurrency: int | None = None
    """Concurrent requests of the client."""
    prefixes: Sequence[Sequence[int]] = ()
    """Ids of the blocks of each prompt that others may share; empty where nothing is shared."""
    n_warmup: int = 0
    """Number of first requests that are not measured."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.input_tokens)


def poisson_arrivals_s(rate_per_s: float, count: int, generator: np.random.Generator, *, burstiness: float = 1.0) -> FloatArray:
    """Return arrival times whose gaps are gamma distributed with the mean of a rate, in seconds; the first request comes at zero.

    Parameters
    ----------
    burstiness
        Shape of the gamma distribution: 1 gives a Poisson process, less gives bursts, more regularity. Its coefficient of variation is
        one over the root of this.
    """
    gaps = generator.gamma(burstiness, 1.0 / (rate_per_s * burstiness), size=count - 1) if count > 1 else np.zeros(0)
    return np.concatenate([np.zeros(1), np.cumsum(gaps)])


def constant_arrivals_s(rate_per_s: float, count: int) -> FloatArray:
    """Return arrival times at equal distances, in seconds."""
    return np.arange(count, dtype=np.float64) / rate_per_s


@dataclass(frozen=True, slots=True)
class UniformTokens:
    """Lengths that are equally likely from the least to the most, both included."""

    least: int
    most: int

    def draw(self, count: int, generator: np.random.Generator) -> IntArray:
        """Return a number of lengths."""
        return generator.integers(self.least, self.most, size=count, endpoint=True)


@dataclass(frozen=True, slots=True)
class LognormalTokens:
    """Lengths whose logarithm is normal, at least one token; from their mean and the length that nine of ten do not exceed.

    Of the two spreads that fit, the smaller is taken.
    """

    mean: float
    p90: float

    def __post_init__(self) -> None:
        """Refuse what no such distribution has."""
        if self.p90 < self.mean:
            raise DomainError(f"p90 {self.p90:g} is below the mean {self.mean:g}", hint="give a p90 above the mean")

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return lognormal_sigma(self.mean, self.p90)

    @property
    def largest_p90(self) -> float:
        """The largest p90 that goes with the mean: 2.27 times it."""
        return largest_p90(self.mean)

    def draw(self, count: int, generator: np.random.Generator) -> IntArray:
        """Return a number of lengths."""
        drawn = generator.lognormal(log(self.mean) - self.sigma**2 / 2.0, self.sigma, size=count)
        return np.maximum(np.rint(drawn), 1.0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class EmpiricalTokens:
    """Lengths drawn from a list, each entry equally likely."""

    values: tuple[int, ...]

    def draw(self, count: int, generator: np.random.Generator) -> IntArray:
        """Return a number of lengths."""
        return generator.choice(np.array(self.values, dtype=np.int64), size=count)


Tokens = UniformTokens | LognormalTokens | EmpiricalTokens


def grows_without_end(sent: IntArray, left: IntArray) -> bool:
    """Return whether the number of requests between two moments of theirs grows until the end of arrivals.

    The number under way at the end of each quarter of the arrivals must grow each time, and in the second half by more than two standard
    deviations of what a stable queue does: sqrt(n / 2) for the arrivals of that half, and as much for the answers.
    """
    if len(sent) < 64 or sent[-1] == sent[0]:
        return False
    ended = np.sort(left)
    n_sent = [len(sent) * quarter // 4 for quarter in range(1, 5)]
    under_way = [int(n - np.searchsorted(ended, int(sent[n - 1]))) for n in n_sent]
    grows = all(earlier < later for earlier, later in pairwise(under_way))
    return grows and under_way[3] - under_way[1] > 2.0 * len(sent) ** 0.5
