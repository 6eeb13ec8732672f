"""Compute speed of the ranks of a class, and its variation from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from statistics import NormalDist
from typing import Final, Literal, Protocol

import numpy as np

from clustersim.kernels.kernel_model import KernelModel
from clustersim.topology.cluster import FloatArray
from clustersim.workloads.operators import Kernel

JitterDistribution = Literal["lognormal", "exponential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Computation of each rank takes, in each step, a random factor of mean 1 times as long as usual."""

    sigma: float
    """Standard deviation of the logarithm of a lognormal factor, which is about its coefficient of variation while it is small. An
    exponential factor has a coefficient of variation of 1, and no other."""
    distribution: JitterDistribution = "lognormal"

    def drawn(self, n_coupled: Sequence[int], seed: int) -> Drawn:
        """Return factors of classes, each the largest of those of so many ranks."""
        distribution = Exponential() if self.distribution == "exponential" else Lognormal(sigma=self.sigma)
        return Drawn(distribution, n_coupled, seed=seed)

    def largest(self, n_ranks: int) -> float:
        """Return the expected largest of the factors of a number of ranks: how long a step is that all of them wait for.

        Examples
        --------
        >>> [round(Jitter(sigma=0.05).largest(n), 3) for n in (1, 64, 4096)]
        [1.0, 1.123, 1.197]
        """
        if n_ranks == 1:
            return 1.0
        if self.distribution == "exponential":
            return float((1.0 / np.arange(1, n_ranks + 1)).sum())
        below = np.array([NORMAL.cdf(edge) for edge in EDGES.tolist()]) ** n_ranks
        factors = np.exp(self.sigma * 0.5 * (EDGES[1:] + EDGES[:-1]) - 0.5 * self.sigma**2)
        return float(factors @ np.diff(below))


NORMAL: Final = NormalDist()
EDGES: Final = np.linspace(-10.0, 20.0, 6001)
"""Standard deviations over which the largest of lognormal factors is integrated: its quantiles up to the largest sigma."""

BLOCK_DRAWS = 4096
"""Random numbers drawn in one batch for one class."""


class Timing(Protocol):
    """Timing of kernels, in seconds."""

    @property
    def blocks(self) -> bool:
        """Whether the host waits for each kernel."""
        ...

    def work_s(self, kernels: Sequence[Kernel]) -> float:
        """Return the time of kernels in order."""
        ...

    def issue_s(self, kernels: Sequence[Kernel], n_collectives: int = 0) -> float:
        """Return the time in which the host issues kernels and collectives."""
        ...


@dataclass(frozen=True, slots=True)
class Slowest:
    """Accelerators of several kinds that go on together after every piece of work: it takes as long as on the one slowest at it."""

    models: tuple[KernelModel, ...]

    @property
    def blocks(self) -> bool:
        """Whether the host waits for each kernel, which is a choice for all."""
        return self.models[0].blocks

    def work_s(self, kernels: Sequence[Kernel]) -> float:
        """Return the longest time of kernels in order."""
        return max(model.work_s(kernels) for model in self.models)

    def issue_s(self, kernels: Sequence[Kernel], n_collectives: int = 0) -> float:
        """Return the longest time in which a host issues them."""
        return max(model.issue_s(kernels, n_collectives) for model in self.models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Speed of the ranks of one class. Communication is not affected."""

    kernels: Timing
    slowdown: float = 1.0
    """Ratio of all computation time to that on a healthy accelerator, the host time of a step included."""
    step_host_s: float | None = None
    """Host time of a step before the slowdown, in seconds; None for that of the machine's calibration."""


class StepVariation(Protocol):
    """Variation of the computation time of a class from step to step."""

    def factor(self, rank_class: int, step: int) -> float:
        """Return how many times as long as usual the computation of a class takes in a step."""
        ...


class Distribution(Protocol):
    """Distribution of the factor of one rank; its mean is 1."""

    def draw(self, generator: np.random.Generator, n_draws: int) -> FloatArray:
        """Return factors that are independent of each other."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """``exp(sigma Z - sigma^2 / 2)`` with a standard normal ``Z``."""

    sigma: float
    """About the relative standard deviation while it is small, which is exactly ``sqrt(exp(sigma^2) - 1)``."""

    def draw(self, generator: np.random.Generator, n_draws: int) -> FloatArray:
        """Return factors that are independent of each other."""
        return exp(-0.5 * self.sigma**2) * generator.lognormal(0.0, self.sigma, n_draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Exponential with mean 1: as uneven as queues are usually taken to be, and the case with the plainest closed forms."""

    def draw(self, generator: np.random.Generator, n_draws: int) -> FloatArray:
        """Return factors that are independent of each other."""
        return generator.standard_exponential(n_draws)


@dataclass(slots=True)
class Drawn:
    """Factors from a random number generator; the same for the same seed, in any order of requests.

    Every class has a stream of random numbers of its own, so that what one draws does not depend on how many steps another makes.

    Parameters
    ----------
    n_coupled
        For each class, how many ranks go at the pace of the slowest among them, because collectives inside their passes join them; the
        factor is the largest of as many draws.

    Examples
    --------
    >>> jitter = Drawn(Lognormal(sigma=0.1), (1, 8), seed=7)
    >>> jitter.factor(1, 5) == Drawn(Lognormal(sigma=0.1), (1, 8), seed=7).factor(1, 5)
    True
    """

    distribution: Distribution
    n_coupled: Sequence[int]
    seed: int = field(kw_only=True)
    _generators: list[np.random.Generator] = field(init=False)
    _drawn: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        """Give each class its own random stream."""
        streams = np.random.SeedSequence(self.seed).spawn(len(self.n_coupled))
        self._generators = [np.random.Generator(np.random.PCG64(stream)) for stream in streams]
        self._drawn = [[] for _ in self.n_coupled]

    def factor(self, rank_class: int, step: int) -> float:
        """Return how many times as long as usual the computation of a class takes in a step."""
        drawn = self._drawn[rank_class]
        while step >= len(drawn):
            coupled = self.n_coupled[rank_class]
            n_steps = max(1, BLOCK_DRAWS // coupled)
            factors = self.distribution.draw(self._generators[rank_class], n_steps * coupled)
            drawn.extend(factors.reshape(n_steps, coupled).max(axis=1).tolist())
        return drawn[step]


@dataclass(frozen=True, slots=True)
class Assigned:
    """Factors of classes that are parts of classes of another jitter."""

    jitter: StepVariation
    origins: Sequence[int]
    """For each class, which one it is a part of."""

    def factor(self, rank_class: int, step: int) -> float:
        """Return how many times as long as usual the computation of a class takes in a step."""
        return self.jitter.factor(self.origins[rank_class], step)
