"""Compare predictions with what others have measured and published."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from pydantic import JsonValue

from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.report.metrics import Flag, Parallelism
from clustersim.scenario.result import Result
from clustersim.scenario.run import run
from clustersim.strategy.plan import Plan
from clustersim.studies.ranking import Ranking, rankings
from clustersim.studies.sources import QUALITIES, MeasuredSpec, PublishedSource, Quality, RowSpec, read_source, source_names, value_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """Where a measurement was published."""

    table: str
    row: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """One published run, measured and predicted."""

    id: str
    source: RowPlace
    quality: Quality
    """A: the source says all that matters; B: one or two things had to be assumed."""
    model: str
    gpus: int
    parallelism: Parallelism
    virtual_stages: int
    global_batch_size: int
    measured_s: float
    derived_from: str | None
    """What the measured step time was computed from, where the source does not print it."""
    predicted_s: float
    error_fraction: float
    """Predicted over measured step time, less one."""
    fits: bool
    """Whether the run, which did fit, is predicted to."""
    peak_bytes: float
    capacity_bytes: float
    measured_peak_bytes: float | None
    memory_error_fraction: float | None
    """Predicted over measured peak, less one; None where the source prints none."""
    assumed: tuple[str, ...]
    """What the source does not say about the run."""
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfitResult:
    """A run that ran out of memory, and the peak that is predicted for it."""

    id: str
    source: RowPlace
    fits: bool
    """True where the prediction is wrong."""
    peak_bytes: float
    capacity_bytes: float
    assumed: tuple[str, ...]


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
    false_out_of_memory: tuple[str, ...]
    """Rows that ran and are predicted not to fit."""
    n_memory_rows: int
    """Rows with a printed peak of memory."""
    mean_absolute_memory_error_fraction: float | None
    """Of those; None without any."""
    worst_memory_error_fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """Why a key of the scenarios of a source has its value."""

    key: str
    value: str
    """What the rows have in common; empty where they share none."""
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
    """Of layouts of one model on as many accelerators."""
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Some sources and all of their rows together."""

    sources: tuple[SourceResult, ...]
    summary: Summary

    def better_than(self, limit_fraction: float) -> bool:
        """Return whether the mean absolute error is within a limit and no row is wrongly said not to fit."""
        return self.summary.mean_absolute_error_fraction <= limit_fraction and not self.summary.false_out_of_memory


OnRow = Callable[[int, int, str], None]
"""Called before each row with its number, from one, the number of rows, and its id."""


def validate(sources: Sequence[str | Path] = (), *, quality: Quality = QUALITIES[-1], on_row: OnRow | None = None) -> Validation:
    """Simulate published runs and compare the step times.

    Parameters
    ----------
    sources
        Names of shipped sources, or paths of files of the same form; all shipped ones when empty. One named twice is run once.
    quality
        The least that a row must have.
    on_row
        Told of the progress.

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
    wanted = [[index for index, row in enumerate(source.spec.rows) if row.quality <= quality] for source in chosen]
    total = sum(len(indices) for indices in wanted)
    if not total:
        raise ScenarioError(f"no row has quality {quality}", hint=f"use quality {QUALITIES[-1]}")
    number = 0
    results: list[SourceResult] = []
    for source, indices in zip(chosen, wanted, strict=True):
        rows: list[RowResult] = []
        fitted: dict[str, None] = {}
        for index in indices:
            number += 1
            if on_row:
                on_row(number, total, source.spec.rows[index].id)
            row, fits = run_row(source, index)
            rows.append(row)
            fitted |= dict.fromkeys(fits)
        if rows:
            results.append(_source_result(source, rows, tuple(fitted)))
    return Validation(sources=tuple(results), summary=summarise([row for result in results for row in result.rows]))


def run_row(source: PublishedSource, index: int) -> tuple[RowResult, tuple[str, ...]]:
    """Simulate one row; return it with the calibration constants that were fitted to its source.

    Raises
    ------
    ScenarioError
        When its scenario cannot be used, with the place in the file of the source.
    """
    try:
        result = run(source.scenario(index))
    except ScenarioError as error:
        raise source.located(error, index) from error
    row = source.spec.rows[index]
    return _row_result(source, row, result), _fitted(source, row, result)


def run_misfit(source: PublishedSource, index: int) -> MisfitResult:
    """Return what is predicted of a run that ran out of memory."""
    row, memory = source.spec.out_of_memory[index], run(source.misfit(index)).metrics.memory
    return MisfitResult(
        id=row.id,
        source=RowPlace(table=row.source.table, row=row.source.row, url=row.source.url or source.spec.urls[0]),
        fits=memory.fits,
        peak_bytes=memory.peak_bytes,
        capacity_bytes=memory.capacity_bytes,
        assumed=tuple(row.assumed),
    )


def step_time_of(measured: MeasuredSpec, plan: Plan) -> tuple[float, str | None]:
    """Return the measured time of a step in seconds, and from which printed rate it follows; None where it was printed itself."""
    if measured.samples_per_s is not None:
        return plan.training.global_batch_size / measured.samples_per_s, "the printed samples per second"
    if measured.tokens_per_s_per_gpu is not None:
        tokens = plan.training.global_batch_size * plan.training.seq_length
        return tokens / (measured.tokens_per_s_per_gpu * plan.n_ranks), "the printed tokens per second and GPU"
    assert measured.step_time is not None  # a row says one of the three
    return measured.step_time, None


def summarise(rows: Sequence[RowResult]) -> Summary:
    """Return how wrong the predictions of at least one row are."""
    errors = [abs(row.error_fraction) for row in rows]
    worst = max(rows, key=lambda row: abs(row.error_fraction))
    memory = [row.memory_error_fraction for row in rows if row.memory_error_fraction is not None]
    return Summary(
        n_rows=len(rows),
        mean_absolute_error_fraction=fmean(errors),
        median_absolute_error_fraction=median(errors),
        mean_error_fraction=fmean(row.error_fraction for row in rows),
        worst_row=worst.id,
        worst_error_fraction=worst.error_fraction,
        false_out_of_memory=tuple(row.id for row in rows if not row.fits),
        n_memory_rows=len(memory),
        mean_absolute_memory_error_fraction=fmean(map(abs, memory)) if memory else None,
        worst_memory_error_fraction=max(memory, key=abs) if memory else None,
    )


def _row_result(source: PublishedSource, row: RowSpec, result: Result) -> RowResult:
    metrics, strategy, measured = result.metrics, result.built.plan.strategy, row.measured
    measured_s, method = step_time_of(measured, result.built.plan)
    return RowResult(
        id=row.id,
        source=RowPlace(table=row.source.table, row=row.source.row, url=row.source.url or source.spec.urls[0]),
        quality=row.quality,
        model=result.built.plan.model.name,
        gpus=metrics.gpus,
        parallelism=metrics.parallelism,
        virtual_stages=strategy.virtual_stages,
        global_batch_size=result.built.plan.training.global_batch_size,
        measured_s=measured_s,
        derived_from=row.derived_from or method,
        predicted_s=metrics.step_time_s,
        error_fraction=metrics.step_time_s / measured_s - 1.0,
        fits=metrics.memory.fits,
        peak_bytes=metrics.memory.peak_bytes,
        capacity_bytes=metrics.memory.capacity_bytes,
        measured_peak_bytes=measured.memory,
        memory_error_fraction=None if measured.memory is None else metrics.memory.peak_bytes / measured.memory - 1.0,
        assumed=tuple(row.assumed),
        flags=metrics.flags,
    )


def _fitted(source: PublishedSource, row: RowSpec, result: Result) -> tuple[str, ...]:
    """Return the calibration constants whose source is also that of the row."""
    addresses = {*source.spec.urls, row.source.url}
    calibration = calibration_for(result.built.cluster.node.accelerator)
    return tuple(f"{calibration.name}.{constant}" for cited in calibration.sources if cited.url in addresses for constant in cited.covers)


def _source_result(source: PublishedSource, rows: Sequence[RowResult], fitted: tuple[str, ...]) -> SourceResult:
    spec = source.spec
    return SourceResult(
        source_id=spec.source_id,
        title=spec.title,
        urls=tuple(spec.urls),
        retrieved=spec.retrieved,
        notes=tuple(spec.notes),
        conventions=tuple(
            Convention(key=key, value=_shown(value_at(spec.common, key)), reason=reason) for key, reason in spec.conventions.items()
        ),
        fitted=fitted,
        rows=tuple(rows),
        rankings=rankings(rows),
        out_of_memory=tuple(run_misfit(source, index) for index in range(len(spec.out_of_memory))),
        summary=summarise(rows),
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
        raise ScenarioError(f"'{text}' is not a percentage", hint="write a number with its sign, such as '8 %'")
    return float(match[1]) / 100.0
