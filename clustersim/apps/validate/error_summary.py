"""Errors of the predictions of some rows in a few figures, and their correlates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, median
from typing import Final

import numpy as np

from clustersim.apps.validate.capabilities import CAPABILITIES
from clustersim.apps.validate.rows import RowResult
from clustersim.measure.metrics import nine_digits
from clustersim.topology.cluster import FloatArray
from clustersim.units.grouping import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of the predictions of some rows; step times against step times."""

    n_rows: int
    mean_absolute_error_fraction: float
    median_absolute_error_fraction: float
    mean_error_fraction: float
    """With its sign: below zero, predictions are too fast."""
    worst_row: str
    worst_error_fraction: float
    worst_explained: str | None
    """Why, where somebody knows."""
    coverage_fraction: float | None
    """Share of the rows with an interval that lie in it; None without any."""
    false_out_of_memory: tuple[str, ...]
    """Rows that ran and are predicted not to fit."""
    n_memory_rows: int
    """Rows with a printed peak of memory."""
    mean_absolute_memory_error_fraction: float | None
    """Memory error of those; None without any."""
    worst_memory_error_fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitySummary:
    """Rows that make use of one thing."""

    capability: str
    n_sources: int
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSummary:
    """Groups of layouts together."""

    n_groups: int
    mean_regret_fraction: float
    worst_regret_fraction: float
    mean_kendall_tau: float


def summarise(rows: Sequence[RowResult]) -> Summary:
    """Return how wrong the predictions of at least one row are."""
    errors = [abs(row.error_fraction) for row in rows]
    worst = max(rows, key=lambda row: abs(row.error_fraction))
    memory = [row.memory_error_fraction for row in rows if row.memory_error_fraction is not None]
    covered = [row.covered for row in rows if row.covered is not None]
    return Summary(
        n_rows=len(rows),
        mean_absolute_error_fraction=fmean(errors),
        median_absolute_error_fraction=median(errors),
        mean_error_fraction=fmean(row.error_fraction for row in rows),
        worst_row=worst.id,
        worst_error_fraction=worst.error_fraction,
        worst_explained=worst.explained,
        coverage_fraction=fmean(covered) if covered else None,
        false_out_of_memory=tuple(row.id for row in rows if not row.fits),
        n_memory_rows=len(memory),
        mean_absolute_memory_error_fraction=fmean(map(abs, memory)) if memory else None,
        worst_memory_error_fraction=max(memory, key=abs) if memory else None,
    )


def by_capability(rows_of: Sequence[Sequence[RowResult]]) -> tuple[CapabilitySummary, ...]:
    """Return a summary for each capability that any row makes use of, from the rows of each source."""
    found: list[CapabilitySummary] = []
    generations = sorted({name for rows in rows_of for row in rows for name in row.capabilities} - set(CAPABILITIES))
    for name in (*CAPABILITIES, *generations):
        using = [[row for row in rows if name in row.capabilities] for rows in rows_of]
        together = [row for rows in using for row in rows]
        if together:
            n_sources = sum(1 for rows in using if rows)
            found.append(CapabilitySummary(capability=name, n_sources=n_sources, summary=summarise(together)))
    return tuple(found)


def summarise_rankings(groups: Sequence[Ranking]) -> RankingSummary | None:
    """Return regret and order of all groups; None without any."""
    if not groups:
        return None
    return RankingSummary(
        n_groups=len(groups),
        mean_regret_fraction=fmean(group.regret_fraction for group in groups),
        worst_regret_fraction=max(group.regret_fraction for group in groups),
        mean_kendall_tau=fmean(group.kendall_tau for group in groups),
    )


FEWEST_ROWS: Final = 12
"""Least number of rows of a source; with fewer, anything correlates with anything."""
LEAST_CORRELATION: Final = 0.3
LEAST_T: Final = 3.5
"""Least correlation that counts, in Student's t. By chance one of 175 is so far from nothing with twelve rows, and one of two thousand
with many; two dozen are looked at, so that about one small source in seven would have something named by chance."""
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


FEWEST_RANKED: Final = 3
"""A group of fewer rows says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows of one model on as many accelerators, which differ in layout and micro-batches."""

    model: str
    gpus: int
    n_rows: int
    best_row: str
    """Measured to be the fastest."""
    chosen_row: str
    """Predicted to be."""
    regret_fraction: float
    """By how much the chosen one was measured to be slower than the best."""
    kendall_tau: float
    """Whether pairs of rows are in the right order: 1 where all are, -1 where all are exchanged."""


def rankings(rows: Sequence[RowResult]) -> tuple[Ranking, ...]:
    """Return the groups of some rows that have more than one layout, in the order of their first rows.

    Samples per second are compared, so that batches may differ a little.
    """
    groups = grouped(((row.model, row.gpus), row) for row in rows)
    layouts = {place: {(row.parallelism.tp, row.parallelism.pp, row.parallelism.dp) for row in group} for place, group in groups.items()}
    return tuple(_ranking(group) for place, group in groups.items() if len(group) >= FEWEST_RANKED and len(layouts[place]) > 1)


def _ranking(rows: Sequence[RowResult]) -> Ranking:
    best = max(rows, key=lambda row: row.global_batch_size / row.measured_s)
    # Rows that repeat a configuration have one prediction; the fastest of them stands for it.
    chosen = max(rows, key=lambda row: (row.global_batch_size / row.predicted_s, row.global_batch_size / row.measured_s))
    fastest, taken = (row.global_batch_size / row.measured_s for row in (best, chosen))
    return Ranking(
        model=best.model,
        gpus=best.gpus,
        n_rows=len(rows),
        best_row=best.id,
        chosen_row=chosen.id,
        regret_fraction=fastest / taken - 1.0,
        kendall_tau=kendall_tau(
            [row.measured_s / row.global_batch_size for row in rows], [row.predicted_s / row.global_batch_size for row in rows]
        ),
    )


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau-b of two lists: pairs in the same order less those in the other one, over the root of pairs that are not tied.

    Zero where one of the lists holds one value only.

    References
    ----------
    .. [1] M. G. Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 33 (1945).

    Examples
    --------
    >>> kendall_tau([1, 2, 3], [10, 20, 30]), kendall_tau([1, 2, 3], [3, 2, 1]), kendall_tau([1, 2], [5, 5])
    (1.0, -1.0, 0.0)
    """
    pairs = np.triu_indices(len(first), 1)
    one, other = (np.sign(np.subtract.outer(each, each))[pairs] for each in (np.array(first), np.array(second)))
    untied = float(np.abs(one).sum() * np.abs(other).sum())
    return float(one @ other) / sqrt(untied) if untied else 0.0
