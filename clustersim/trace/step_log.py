"""Record of several steps: stretches that repeat, duration of each step, rank classes that were waited for, staleness of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, floor, fsum, isqrt, pi, sin, sqrt
from statistics import stdev
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
FEW: Final = 20
"""Fewer steps than this are taken one by one; more in batches, because steps that follow each other need not be independent."""
N_BATCHES: Final = (10, 30)
"""Fewest and most batches: more than 30 gain little, fewer than 10 cost much (Schmeiser 1982, "Batch size effects in the analysis of
simulation output", Operations Research 30(3))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSteps:
    """Record of one rank class over several steps."""

    steps: int
    """Ended, those whose gradient was dropped included."""
    last_end_s: float
    """When the last of them ended."""
    idle_s: float
    """Time in which no task of the class was in progress, on none of its streams: it waited for others, or was not let on."""
    waited_s: float
    """Time that was waited for it, mean over those who might have waited: before what several classes do together, from their mean arrival
    to its own as the last; in a pipeline, by which its passes, the longest, exceed theirs; and for as long as the policy held classes
    back until this one let them on."""
    waited_steps: int
    """Steps of all in which it was waited for longer than for any other class."""
    dropped: int
    """Gradients that came too late and were left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """Several steps of a program, in lock-step or each class at its own pace."""

    n_steps: int
    """Asked for: of every class where all go together; where they do not, as many for each on average; with backup workers, updates."""
    step_times_s: tuple[float, ...]
    """One for each step, adding up to ``duration_s``. All together: from the end of the last class in one step to that in the next.
    Each at its own pace: in which as many gradients were applied as there are classes. With backup workers: from update to update."""
    duration_s: float
    """From the start to the end of the last step."""
    classes: tuple[ClassSteps, ...]
    """In the order of the program's rank classes."""
    applied: int
    """Gradients that went into the model, one for each step of a class."""
    staleness: tuple[tuple[int, int], ...]
    """(updates by others between reading the parameters and applying the gradient, how many gradients), ascending."""
    max_lead: int
    """The most steps that a class which began another was ahead of the one that had ended fewest."""

    @property
    def mean_staleness(self) -> float:
        """Mean over the gradients that were applied; 0 without any."""
        return fsum(age * count for age, count in self.staleness) / self.applied if self.applied else 0.0

    @property
    def mean_s(self) -> float:
        """Mean time of a step."""
        return self.duration_s / self.n_steps

    @property
    def median_s(self) -> float:
        """Median time of a step."""
        return quantile(self.step_times_s, 0.5)

    @property
    def p95_s(self) -> float:
        """The time that 95 % of the steps do not exceed."""
        return quantile(self.step_times_s, 0.95)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Lower and upper end of the 95 % confidence interval of the mean time of a step; None for a single step."""
        return confidence_interval(self.step_times_s)


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return a quantile, linear between the values (type 7 of Hyndman and Fan 1996, "Sample quantiles in statistical packages").

    Examples
    --------
    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def confidence_interval(values: Sequence[float]) -> tuple[float, float] | None:
    r"""Return the 95 % confidence interval of the mean, or None for less than two values.

    Up to ``FEW`` values it is :math:`\bar x \pm t_{n-1} s / \sqrt n`. From then on values that follow each other are averaged in
    :math:`b = \min(30, \max(10, \lfloor\sqrt n\rfloor))` batches of :math:`\lfloor n / b \rfloor` (the first few are left over), and
    :math:`s` and :math:`n` are those of the batches: means of long batches are nearly independent where values are not.

    Examples
    --------
    >>> low, high = confidence_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    if len(values) < 2:
        return None
    mean = fsum(values) / len(values)
    samples = list(values)
    if len(values) >= FEW:
        n_batches = min(N_BATCHES[1], max(N_BATCHES[0], isqrt(len(values))))
        size = len(values) // n_batches
        left_over = len(values) - n_batches * size
        samples = [fsum(values[start : start + size]) / size for start in range(left_over, len(values), size)]
    half = student_t(len(samples) - 1) * stdev(samples) / sqrt(len(samples))
    return mean - half, mean + half


def student_t(n_degrees: int) -> float:
    r"""Return the two-sided 5 % quantile of Student's t with a number of degrees of freedom.

    References
    ----------
    .. [1] M. Abramowitz and I. Stegun, *Handbook of Mathematical Functions*, 26.7.3 and 26.7.4: the probability as a finite sum.

    Examples
    --------
    >>> round(student_t(9), 3)
    2.262
    """
    low, high = 0.0, pi / 2
    # The angle has 52 bits.
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _within(middle, n_degrees) < CONFIDENCE else (low, middle)
    angle = 0.5 * (low + high)
    return sqrt(n_degrees) * sin(angle) / cos(angle)


def _within(angle: float, n_degrees: int) -> float:
    """Return the probability that Student's t is smaller in size than ``sqrt(n_degrees) * tan(angle)``."""
    odd = n_degrees % 2 == 1
    term = cos(angle) if odd else 1.0
    terms = [term] if n_degrees > 1 else []
    for number in range(2 if odd else 1, n_degrees - 2, 2):
        term *= cos(angle) ** 2 * number / (number + 1)
        terms.append(term)
    return 2.0 / pi * (angle + sin(angle) * fsum(terms)) if odd else sin(angle) * fsum(terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A period of the timeline that repeats with later micro-batches, or with later steps."""

    start_s: float
    end_s: float
    """Nothing starts or ends at either."""
    times: int
    """Number of repetitions after the first."""
    n_micro_batches: int = 0
    """Increase of the micro-batch number per repetition, by route through the model."""
    n_steps: int = 0
    """By how many steps all go on meanwhile."""
    ways: tuple[int, ...] = (0,)
    """The first micro-batch that is written down of each way through the model; of those that are not there is room between ways."""

    @property
    def period_s(self) -> float:
        """Duration, in seconds."""
        return self.end_s - self.start_s

    @property
    def added_s(self) -> float:
        """Duration of all that is not written down, in seconds."""
        return self.times * self.period_s

    def weights(self, start_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how often each of what starts at some moments happens."""
        import numpy as np

        return np.where((start_s >= self.start_s) & (start_s < self.end_s), 1.0 + self.times, 1.0)

    def later_s(self, moments_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times with all repetitions; those inside are of the first."""
        import numpy as np

        return np.where(moments_s >= self.end_s, moments_s + self.added_s, moments_s)

    def renumbered(self, micro_batches: NDArray[np.int64], number: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the micro-batch numbers of a repetition, or after a number of repetitions; -1 stays."""
        import numpy as np

        way = np.searchsorted(np.array(self.ways), micro_batches, side="right") - 1
        shifted = micro_batches + (np.maximum(way, 0) * self.times + number) * self.n_micro_batches
        return np.where(micro_batches < 0, micro_batches, shifted)
