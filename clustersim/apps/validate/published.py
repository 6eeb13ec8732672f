"""Compare predictions with what others have measured and published."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from clustersim.apps.run.intervals import residuals_path, shipped_bands
from clustersim.apps.validate.cross import BORROWED, BORROWED_RATIOS, SHIPPED_FOLDS, read_folds, unmeasured_widening
from clustersim.apps.validate.error_summary import (
    CapabilitySummary,
    Correlate,
    Ranking,
    RankingSummary,
    Summary,
    by_capability,
    correlates,
    rankings,
    summarise,
    summarise_rankings,
)
from clustersim.apps.validate.quantiles import Residual, thinned
from clustersim.apps.validate.residuals import Coverage, ErrorBars, Widenings, coverage_of, error_bars
from clustersim.apps.validate.rows import MisfitResult, Ran, RowResult, Wanted, run_misfit, run_rows
from clustersim.apps.validate.sources import QUALITIES, PublishedSource, Quality, as_typed, read_source, source_names
from clustersim.documents.check import value_at
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import Bands
from clustersim.progress import phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """Why a key of the scenarios of a source has its value."""

    key: str
    value: str
    """Value that the rows have in common; empty where they share none."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """All rows of one source."""

    source_id: str
    title: str
    urls: tuple[str, ...]
    retrieved: str
    notes: tuple[str, ...]
    conventions: tuple[Convention, ...]
    fitted: tuple[str, ...]
    """Calibration constants that were fitted to this very source, as ``calibration.constant``."""
    rows: tuple[RowResult, ...]
    out_of_memory: tuple[MisfitResult, ...]
    rankings: tuple[Ranking, ...]
    """Rankings of layouts of one model on as many accelerators."""
    summary: Summary
    correlates: tuple[Correlate, ...] = ()
    """Correlates of the errors of rows of which all that decides the result is known; nothing where that may be chance."""

    @property
    def stated(self) -> tuple[RowResult, ...]:
        """Rows whose error is that of a whole step."""
        return tuple(row for row in self.rows if row.scored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Some sources and all of their rows together."""

    sources: tuple[SourceResult, ...]
    summary: Summary
    """Summary of the rows of which all that decides the result is known; of all rows where there is none."""
    hidden: Summary | None = None
    """Summary of the others, whose error is how far the measured time is from all that the prediction may be; None without any."""
    capabilities: tuple[CapabilitySummary, ...] = ()
    rankings: RankingSummary | None = None
    missed_out_of_memory: tuple[str, ...] = ()
    """Runs that ran out of memory and are predicted to fit."""
    coverage: Coverage | None = None
    """Share of rows that lie in intervals which other sources give; None where no row has one."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Rows that cannot be simulated by what people type of them alone, by id, and why."""

    def faster_than_peak(self) -> tuple[RowResult, ...]:
        """Return the rows that were measured to be shorter than the peak of the data sheet allows, worst first.

        Where the speed alone is given, FLOPs of layers are shares of it, and not what kernels did (Winograd's convolutions do fewer).
        """
        rows = [row for source in self.sources for row in source.rows if row.measured_s < row.peak_s and not row.speed_given]
        return tuple(sorted(rows, key=lambda row: (row.measured_s / row.peak_s, row.id)))

    def better_than(self, limit_fraction: float) -> bool:
        """Return whether the mean absolute error is within a limit and no row is wrongly said not to fit."""
        return self.summary.mean_absolute_error_fraction <= limit_fraction and not self.summary.false_out_of_memory


def validate(
    sources: Sequence[str | Path] = (), *, quality: Quality = QUALITIES[-1], jobs: int | None = 1, bounds: bool = True
) -> Validation:
    """Simulate published runs and compare the step times.

    Parameters
    ----------
    sources
        Names of shipped sources, or paths of files of the same form; all shipped ones when empty. One named twice is run once.
    quality
        The least that a row must have.
    jobs
        Processes among which rows are divided, None for one for each processor; the result is the same.
    bounds
        Whether to find the lower bound of each row, and whether it is chaotic, which takes about a quarter of the time.

    Raises
    ------
    ScenarioError
        When there is no such source, a file cannot be used, or no row is left.

    Examples
    --------
    >>> validate(["korthikanti-2022"]).summary.n_rows
    4
    """
    chosen = [read_source(name) for name in dict.fromkeys(sources or source_names())]
    wanted = [(source, index) for source in chosen for index, row in enumerate(source.spec.rows) if row.quality <= quality]
    if not wanted:
        raise ScenarioError(f"no row has quality {quality}", hint=f"use quality {QUALITIES[-1]}")
    with phase("simulate published rows"):
        ran = run_rows(wanted, jobs=jobs, bounds=bounds)
    return _compared(wanted, ran)


def validate_defaults(sources: Sequence[str | Path] = (), *, jobs: int | None = 1, bounds: bool = True) -> Validation:
    """Simulate published runs by what people type of them alone, and compare the step times.

    A row keeps model, cluster, batch, sequence, precision, degrees, schedule and recomputation; defaults say the rest. Rows that hide a
    setting are left out, and of a source at most 120 rows are run, evenly taken.

    Parameters
    ----------
    sources, jobs, bounds
        As for :func:`validate`.

    Examples
    --------
    >>> validate_defaults(["korthikanti-2022"]).summary.n_rows
    4
    """
    chosen = [read_source(name) for name in dict.fromkeys(sources or source_names())]
    wanted = [
        (typed, index)
        for source, typed in zip(chosen, map(as_typed, chosen), strict=True)
        for index in thinned([index for index, row in enumerate(source.spec.rows) if not row.hidden and not _gives_speed(source, index)])
    ]
    if not wanted:
        raise ScenarioError("no row says all that decides it", hint="name another source")
    with phase("simulate published rows by defaults"):
        ran = run_rows(wanted, jobs=jobs, bounds=bounds, refused=True)
    return _compared(wanted, ran)


def _compared(wanted: Sequence[Wanted], ran: Sequence[Ran | str]) -> Validation:
    """Return rows that were run, by source, beside their measurements."""
    results: list[SourceResult] = []
    refused: dict[str, str] = {}
    bands = shipped_bands()
    for source in {id(source): source for source, _ in wanted}.values():
        found = [(source.spec.rows[index].id, each) for each, (of, index) in zip(ran, wanted, strict=True) if of is source]
        refused |= {row_id: each for row_id, each in found if isinstance(each, str)}
        rows = [each for _, each in found if not isinstance(each, str)]
        if rows:
            judged = [_with_interval(row, source.spec.source_id, bands) for row, _ in rows]
            fitted = tuple(dict.fromkeys(constant for _, fits in rows for constant in fits))
            results.append(_source_result(source, judged, fitted))
    return replace(_together(tuple(results)), refused=refused)


def _gives_speed(source: PublishedSource, index: int) -> bool:
    model = source.scenario(index).get("model")
    return isinstance(model, dict) and "samples_per_s" in model


def check_complete(sources: Sequence[str], quality: Quality) -> None:
    """Refuse to make error bars of some rows only.

    Raises
    ------
    ScenarioError
        When sources are named, or rows are left out by their quality.
    """
    if sources or quality != QUALITIES[-1]:
        message = "error bars are made of all rows of all shipped sources"
        raise ScenarioError(message, field="--write-residuals", hint="name no source, and no --quality")


def step_time_error_bars(said: Validation, defaults: Validation) -> ErrorBars:
    """Return error bars of step times from all rows, as they are and by defaults alone."""
    folds = read_folds(residuals_path(SHIPPED_FOLDS))
    kinds = {"unmeasured": "generation", "borrowed": BORROWED, "borrowed_ratios": BORROWED_RATIOS}
    widenings = Widenings(**{name: unmeasured_widening(folds, kind) for name, kind in kinds.items()})
    return error_bars([*_residuals(said), *_residuals(defaults)], widenings)


def _residuals(validation: Validation) -> list[Residual]:
    return [
        Residual(
            source_id=source.source_id,
            row_id=row.id,
            kind=row.kind,
            measured_s=row.measured_s,
            predicted_s=row.predicted_s,
            accelerator=row.accelerator,
            machine=row.machine,
            n_accelerators=row.gpus,
            seq_length=row.seq_length,
        )
        for source in validation.sources
        for row in source.stated
    ]


def memory_error_bars(validation: Validation) -> ErrorBars:
    """Return error bars of peaks of memory, whose bytes are in the place of seconds: only their ratio counts. All are of one kind."""
    return error_bars(
        [
            Residual(source_id=source.source_id, row_id=row.id, kind=(), measured_s=row.measured_peak_bytes, predicted_s=row.peak_bytes)
            for source in validation.sources
            for row in source.rows
            if row.memory_error_fraction is not None and row.measured_peak_bytes is not None
        ]
    )


def _together(results: tuple[SourceResult, ...]) -> Validation:
    rows = [row for result in results for row in result.rows]
    stated = [row for result in results for row in result.stated]
    hidden = [row for row in rows if row.predicted_range_s is not None]
    judged = {result.source_id: [row.covered for row in result.rows if row.covered is not None] for result in results}
    inside = {source_id: covered for source_id, covered in judged.items() if covered}
    return Validation(
        sources=results,
        summary=summarise(stated or rows),
        hidden=summarise(hidden) if hidden else None,
        capabilities=by_capability([result.stated for result in results]),
        rankings=summarise_rankings([ranking for result in results for ranking in result.rankings]),
        missed_out_of_memory=tuple(row.id for result in results for row in result.out_of_memory if row.fits),
        coverage=coverage_of(inside) if inside else None,
    )


def _with_interval(row: RowResult, source_id: str, bands: Bands) -> RowResult:
    """Return a row with its interval: by the other sources, if its own has a part in the error bars."""
    if not row.scored:
        return row
    spread = bands.held_out.get(source_id, bands.spread)
    return replace(row, interval_s=spread.band(row.kind).interval_s(row.predicted_s))


def _source_result(source: PublishedSource, rows: Sequence[RowResult], fitted: tuple[str, ...]) -> SourceResult:
    spec = source.spec
    return SourceResult(
        source_id=spec.source_id,
        title=spec.title,
        urls=tuple(spec.urls),
        retrieved=spec.retrieved,
        notes=tuple(spec.notes),
        conventions=tuple(
            Convention(key=key, value=_shown(value_at(spec.common, key.split("."))), reason=reason)
            for key, reason in spec.conventions.items()
        ),
        fitted=fitted,
        rows=tuple(rows),
        rankings=rankings([row for row in rows if row.scored]),
        out_of_memory=tuple(run_misfit(source, index) for index in range(len(spec.out_of_memory))),
        summary=summarise(rows),
        correlates=correlates([row for row in rows if row.scored]),
    )


def _shown(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def parse_error_limit(text: str) -> float:
    """Return a limit such as ``8 %`` as a fraction.

    Raises
    ------
    ScenarioError
        When it is no number with a percent sign.

    Examples
    --------
    >>> parse_error_limit("8 %")
    0.08
    """
    match = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,12})?)\s*%\s*", text, re.ASCII)
    if match is None:
        raise ScenarioError(f"'{text}' is not a percentage", field="--fail-over", hint="write a number with its sign, such as '8 %'")
    return float(match[1]) / 100.0
