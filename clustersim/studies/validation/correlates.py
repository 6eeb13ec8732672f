"""What the errors of a source go with: where to look for a mechanism that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

import numpy as np

from clustersim.report.ties import nine_digits
from clustersim.studies.validation.rows import RowResult
from clustersim.topology.cluster import FloatArray

FEWEST_ROWS: Final = 12
"""Of a source; with less, anything goes with anything."""
LEAST_CORRELATION: Final = 0.3
LEAST_T: Final = 3.5
"""Of a correlation, in Student's t: by chance one of 175 is so far from nothing with twelve rows, and one of two thousand with many;
two dozen are looked at, so that about one small source in seven would have something named by chance."""
MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlate:
    """A feature that errors go with."""

    feature: str
    rank_correlation: float
    """Above zero, predictions are the slower, beside the measurements, the more there is of it."""


def correlates(rows: Sequence[RowResult]) -> tuple[Correlate, ...]:
    r"""Return what the errors of the rows of a source go with, the strongest first; nothing where that may be chance.

    Spearman's correlation of the error with its sign and each feature,

    .. math:: \rho = \mathrm{corr}(\mathrm{rank}(e),\ \mathrm{rank}(x)), \qquad t = \rho \sqrt{(n - 2) / (1 - \rho^2)} ,

    with the mean rank for equals. Features go with each other too: what is named is where to look, and not a cause.

    References
    ----------
    .. [1] C. Spearman, "The proof and measurement of association between two things", American Journal of Psychology 15, 1904.
    """
    if len(rows) < FEWEST_ROWS:
        return ()
    errors = mean_ranks(np.array([row.error_fraction for row in rows]))
    found: list[Correlate] = []
    for feature in rows[0].features:
        rho = _correlation(errors, mean_ranks(np.array([row.features[feature] for row in rows])))
        t = abs(rho) * sqrt((len(rows) - 2) / (1.0 - rho**2)) if abs(rho) < 1.0 else inf
        if abs(rho) >= LEAST_CORRELATION and t >= LEAST_T:
            found.append(Correlate(feature=feature, rank_correlation=rho))
    return tuple(sorted(found, key=lambda each: -abs(each.rank_correlation))[:MOST_SHOWN])


def mean_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value from 1 up, and the mean of their ranks for those that are equal to nine digits.

    Examples
    --------
    >>> mean_ranks(np.array([0.5, 0.1, 0.5, 0.9])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    rounded = np.array([nine_digits(value) for value in values.tolist()])
    _, which, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: FloatArray = ends - (counts - 1) / 2.0
    return means[which]


def _correlation(one: FloatArray, other: FloatArray) -> float:
    one, other = one - one.mean(), other - other.mean()
    spread = sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / spread if spread > 0.0 else 0.0
