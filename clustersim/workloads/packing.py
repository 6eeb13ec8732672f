"""Documents that are packed into sequences and attend to themselves alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Final

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
