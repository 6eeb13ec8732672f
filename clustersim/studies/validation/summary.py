"""How wrong the predictions of some rows are, in a few figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from clustersim.studies.ranking import Ranking
from clustersim.studies.validation.capabilities import CAPABILITIES
from clustersim.studies.validation.rows import RowResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How wrong the predictions of some rows are; step times against step times."""

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
    """Of the rows with an interval, how many lie in it; None without any."""
    false_out_of_memory: tuple[str, ...]
    """Rows that ran and are predicted not to fit."""
    n_memory_rows: int
    """Rows with a printed peak of memory."""
    mean_absolute_memory_error_fraction: float | None
    """Of those; None without any."""
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
    for name in CAPABILITIES:
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
