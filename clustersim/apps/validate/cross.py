"""Leave one source, or one generation of accelerators, out, fit what was fitted to steps to the others, and predict it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log, sqrt
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

from clustersim.apps.calibrate.fit_steps import MeasuredStep, Predictions, Slopes, fit_steps, predicted_s, slopes_of, steps_of
from clustersim.apps.validate.quantiles import thinned
from clustersim.apps.validate.sources import read_source, source_names
from clustersim.documents.csv_text import csv_text
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_of_generation, changed, constant
from clustersim.progress import advanced, phase

NEUTRAL: Final[Mapping[str, float]] = MappingProxyType(
    {"gemm.under_load.default": 0.9, "memory_fraction": 0.8, "launch.dispatch": 20e-6, "launch.step": 10e-3}
)
"""Constants that shipped calibrations fit to steps, and what they would be taken to be if no step had been measured: a tenth lost under
load, four fifths of the memory's bandwidth, what a launch from Python takes, and 10 ms for data, logging and the scale of the loss."""
SHIPPED_FOLDS: Final = "cross-validation.csv"
"""File of the folds of this version, with the errors."""
BORROWED: Final = "borrowed"
"""Kind of the folds in which a generation has all constants of the one that lends."""
BORROWED_RATIOS: Final = "borrowed ratios"
"""The same for ratios of two times of one source: their numbers, and means of absolute logarithms."""
SHARED: Final = ("launch.dispatch", "launch.step")
"""Constants of the host, the same for all accelerators."""
ROWS: Final = 30
"""Rows of a source that take part, evenly taken: each is replayed seven times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Left-out source or generation, and how it was predicted without it."""

    kind: str
    """``source``, ``generation``, or ``borrowed`` or ``borrowed ratios`` for a generation with all constants of the one that lends."""
    left_out: str
    n_rows: int
    shipped_fraction: float
    """Mean absolute error with the shipped constants, to some of which it may have given its share."""
    refitted_fraction: float
    """The same with constants fitted to the others, or borrowed."""
    quality_a: tuple[int, float]
    """Number of rows of quality A, and their mean absolute error with refitted constants; (0, 0.0) without any."""
    constants: tuple[tuple[str, float], ...]
    """``generation.constant`` and its value, in SI units, of the generations that were left out in part or whole."""


def measured_steps(names: Sequence[str] = ()) -> list[MeasuredStep]:
    """Return the steps of sources, each weighing as the root of its rows; what a source does not say is no step."""
    found: list[MeasuredStep] = []
    for name in names or source_names():
        steps = thinned(steps_of(read_source(name)), ROWS)
        found += [replace(step, weight=1.0 / sqrt(len(steps))) for step in steps]
    return found


def cross_validate(names: Sequence[str] = ()) -> list[Fold]:
    """Return how each source is predicted by the others, and each generation by the others.

    Constants that the shipped calibrations fit to steps start from what would be assumed without any, and are fitted to the steps of all
    other sources, with times linear in the logarithms of constants around the shipped ones; the steps that were left out are simulated
    with what came of it. Of a generation that is left out nothing is known: its constants are those assumed, moved by the factor that all
    other generations share. Everything else stays: what was measured on kernels and collectives is not of the sources. At last each
    generation is predicted with all constants of the one that lends.

    Parameters
    ----------
    names
        Of sources; all shipped ones if none.
    """
    steps = measured_steps(names)
    generations = list(dict.fromkeys(step.generation for step in steps))
    shipped = {each: calibration_of_generation(each) for each in generations}
    slopes = slopes_of(steps, shipped, tuple(NEUTRAL), predictions=Predictions(tuple(steps)))
    neutral = {each: changed(calibration, NEUTRAL) for each, calibration in shipped.items()}
    errors = {step.id: time_s / step.measured_s - 1.0 for step, time_s in zip(steps, slopes.times_s, strict=True)}
    # Rows of which nothing had to be assumed.
    best = {row.id for name in names or source_names() for row in read_source(name).spec.rows if row.quality == "A"}
    sources = dict.fromkeys(step.source for step in steps)
    lent = calibration_of_generation("")
    lots = [*(("source", name) for name in sources), *(("generation", name) for name in generations)]
    lots += [(BORROWED, name) for name in generations if name != lent.generation]
    folds: list[Fold] = []
    for number, (kind, left_out) in enumerate(lots, 1):
        with phase(f"predict {left_out} without it"):
            advanced(number, len(lots))
            by = "source" if kind == "source" else "generation"
            others = slopes.where(lambda step, of=left_out, by=by: getattr(step, by) != of)
            held = [step for step in steps if getattr(step, by) == left_out]
            if not others.steps:
                continue
            if kind == BORROWED:
                constants = {left_out: replace(lent, generation=left_out)}
            else:
                constants = _refitted(others, neutral, share_all=kind == "generation", wanted=[step.generation for step in held])
            again = {step.id: predicted_s(step, constants) / step.measured_s - 1.0 for step in held}
            good = [abs(again[step.id]) for step in held if step.id in best]
            folds.append(
                Fold(
                    kind=kind,
                    left_out=left_out,
                    n_rows=len(held),
                    shipped_fraction=fmean(abs(errors[step.id]) for step in held),
                    refitted_fraction=fmean(map(abs, again.values())),
                    quality_a=(len(good), fmean(good) if good else 0.0),
                    constants=tuple(
                        (f"{each}.{name}", constant(constants[each], name))
                        for each in dict.fromkeys(step.generation for step in held)
                        for name in NEUTRAL
                    ),
                )
            )
            pairs = [(one.id, other.id) for one, other in combinations(held, 2) if one.source == other.source]
            if kind == BORROWED and pairs:
                folds.append(_of_ratios(folds[-1], pairs, errors, again))
    return folds


def _of_ratios(fold: Fold, pairs: Sequence[tuple[str, str]], shipped: Mapping[str, float], borrowed: Mapping[str, float]) -> Fold:
    """Return how ratios of two times are predicted, from the errors of steps by their id."""
    sizes = [fmean(abs(log((1.0 + errors[one]) / (1.0 + errors[other]))) for one, other in pairs) for errors in (shipped, borrowed)]
    return replace(
        fold,
        kind=BORROWED_RATIOS,
        n_rows=len(pairs),
        shipped_fraction=sizes[0],
        refitted_fraction=sizes[1],
        quality_a=(0, 0.0),
        constants=(),
    )


def _refitted(others: Slopes, neutral: Mapping[str, Calibration], *, share_all: bool, wanted: Sequence[str]) -> dict[str, Calibration]:
    """Return the constants of all generations; of those without a step, moved as all others together."""
    known = {step.generation for step in others.steps}
    result = dict(neutral)
    if not share_all:
        fitted = fit_steps(others.steps, neutral, names=tuple(NEUTRAL), shared=SHARED, predictions=others)
        result |= {each: calibration for each, calibration in fitted.constants.items() if each in known}
    if share_all or not set(wanted) <= known:
        together = fit_steps(others.steps, neutral, names=tuple(NEUTRAL), shared=tuple(NEUTRAL), predictions=others).constants
        some = next(iter(sorted(known)))
        factors = {name: constant(together[some], name) / constant(neutral[some], name) for name in NEUTRAL}
        for each in set(wanted) - (set() if share_all else known):
            moved = {name: constant(neutral[each], name) * factor for name, factor in factors.items()}
            # Shares are at most 1; times of launches are no shares.
            result[each] = changed(neutral[each], {name: value if name in SHARED else min(value, 1.0) for name, value in moved.items()})
    return result


_COLUMNS: Final = ("kind", "left_out", "rows", "shipped_error", "refitted_error", "a_rows", "a_refitted_error", "constants")


def folds_text(folds: Sequence[Fold]) -> str:
    """Return folds as CSV; errors as fractions to four digits, constants in SI units to three."""
    rows: list[tuple[str | int, ...]] = [_COLUMNS]
    for fold in folds:
        constants = " ".join(f"{name}={value:.3g}" for name, value in fold.constants)
        errors = f"{fold.shipped_fraction:.4f}", f"{fold.refitted_fraction:.4f}"
        rows.append((fold.kind, fold.left_out, fold.n_rows, *errors, fold.quality_a[0], f"{fold.quality_a[1]:.4f}", constants))
    return csv_text(rows)


def read_folds(path: Path) -> list[Fold]:
    """Return folds that were written as CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Fold(
                kind=row["kind"],
                left_out=row["left_out"],
                n_rows=int(row["rows"]),
                shipped_fraction=float(row["shipped_error"]),
                refitted_fraction=float(row["refitted_error"]),
                quality_a=(int(row["a_rows"]), float(row["a_refitted_error"])),
                constants=tuple((name, float(value)) for name, _, value in (each.partition("=") for each in row["constants"].split())),
            )
            for row in csv.DictReader(file)
        ]


def unmeasured_widening(folds: Sequence[Fold], kind: str = "generation") -> float:
    """Return how many times larger the error of a generation is in folds of one kind, a mean over generations; at least 1."""
    chosen = [fold for fold in folds if fold.kind == kind]
    return max(1.0, fmean(fold.refitted_fraction for fold in chosen) / fmean(fold.shipped_fraction for fold in chosen))


def folds_table(folds: Sequence[Fold], kind: str) -> str:
    """Return the folds of one kind as Markdown, with the mean over them and over their rows."""
    chosen = [fold for fold in folds if fold.kind == kind]
    of, other = ("generation", "all constants borrowed") if kind == BORROWED else (f"left out: {kind}", "fitted to the others")
    lines = [f"| {of} | rows | mean absolute error, shipped constants | {other} |", "|---|---:|---:|---:|"]
    lines += [
        f"| `{fold.left_out}` | {fold.n_rows} | {100 * fold.shipped_fraction:.1f} % | {100 * fold.refitted_fraction:.1f} % |"
        for fold in chosen
    ]
    means = [fmean(getattr(fold, name) for fold in chosen) for name in ("shipped_fraction", "refitted_fraction")]
    n_rows = sum(fold.n_rows for fold in chosen)
    by_row = [sum(fold.n_rows * getattr(fold, name) for fold in chosen) / n_rows for name in ("shipped_fraction", "refitted_fraction")]
    lines.append(f"| mean of all | {len(chosen)} | {100 * means[0]:.1f} % | {100 * means[1]:.1f} % |")
    lines.append(f"| all rows | {n_rows} | {100 * by_row[0]:.1f} % | {100 * by_row[1]:.1f} % |")
    n_best = sum(fold.quality_a[0] for fold in chosen)
    if n_best:
        best = sum(fold.quality_a[0] * fold.quality_a[1] for fold in chosen) / n_best
        lines.append(f"| rows of quality A | {n_best} | | {100 * best:.1f} % |")
    return "\n".join(lines) + "\n"
