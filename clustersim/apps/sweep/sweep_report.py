"""Findings of a sweep, in words and as a short table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from clustersim.apps.compare.side_by_side_text import aligned, shown
from clustersim.apps.sweep.axis import canonical
from clustersim.apps.sweep.point import STATUSES
from clustersim.apps.sweep.results import ResultRow, chosen_metrics
from clustersim.apps.sweep.sweeping import SweepResult
from clustersim.measure.deciding import undecided_text

N_SHOWN: Final = 20
"""Points of the table."""
N_REASONS = 5
_TOO_LARGE = "does not fit in memory"


def text_of(result: SweepResult) -> str:
    """Return what ``sweep`` prints of a result, with the main metrics alone."""
    main = tuple(name for name in chosen_metrics(()) if name in result.question.metrics)
    columns, rows = table(replace(result, question=replace(result.question, metrics=main)), N_SHOWN)
    parts = ["\n".join((headline(result), count_line(result))), aligned(columns, rows) if rows else "", "\n".join(reason_lines(result))]
    return "\n\n".join(part for part in parts if part)


def headline(result: SweepResult) -> str:
    """Return the answer: the best point, or that there is none."""
    question, best = result.question, result.best
    n_points = len(result.rows)
    points = f"{n_points:,} point{'' if n_points == 1 else 's'}"
    if best is None:
        asked = " and ".join(each.text for each in question.where)
        return f"None of {points} {f'meets {asked}' if asked and result.count('ok') else 'can run'}"
    figures = ", ".join(
        f"{name} {shown(name, float(best.outcome.figures[name]))}" for name in question.sort.names if name in best.outcome.figures
    )
    answer = f"Best of {points}: {point_text(best)}" + (f" ({figures})" if figures else "")
    near = [f"point {row.point.number}" for row in result.undecided]
    return "; ".join(part for part in (answer, undecided_text(near)) if part)


def count_line(result: SweepResult) -> str:
    """Return how many points ended how."""
    counts = [f"{result.count(status):,} {status}" for status in STATUSES if result.count(status)]
    where = result.question.where
    meets = f"; {len(result.answers):,} meet {' and '.join(each.text for each in where)}" if where else ""
    kept = f"; {result.n_kept:,} were kept from before" if result.n_kept else ""
    return f"{', '.join(counts)}{meets}{kept}"


def table(result: SweepResult, most: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of the best points; metrics that none of them has are left out."""
    question, rows = result.question, result.answers[:most]
    metrics = [name for name in question.metrics if any(name in row.outcome.figures for row in rows)]
    columns = ("point", *question.design.keys, *(f">{name}" for name in metrics))
    cells = [
        (
            f"{row.point.number}",
            *(value_text(row.point.values[key]) for key in question.design.keys),
            *(_figure(row, name) for name in metrics),
        )
        for row in rows
    ]
    return columns, cells


def reason_lines(result: SweepResult) -> list[str]:
    """Return why points did not end well, the most frequent reasons of each kind first."""
    lines: list[str] = []
    for status in STATUSES[1:]:
        reasons = Counter(_kind(row.outcome.reason) for row in result.rows if row.outcome.status == status)
        ordered = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
        lines += [f"{status}: {number:,} x {reason}" for reason, number in ordered[:N_REASONS]]
        if len(ordered) > N_REASONS:
            lines.append(
                f"{status}: {sum(number for _, number in ordered[N_REASONS:]):,} more, for {len(ordered) - N_REASONS} other reasons"
            )
    return lines


def point_text(row: ResultRow) -> str:
    """Return the values of a point, such as ``strategy.tp=4 strategy.pp=2``."""
    return " ".join(f"{key}={value_text(value)}" for key, value in row.point.values.items())


def value_text(value: object) -> str:
    """Return a value as it is written on the command line."""
    return value if isinstance(value, str) else canonical(value)


def _figure(row: ResultRow, name: str) -> str:
    value = row.outcome.figures.get(name)
    if isinstance(value, bool):
        return str(value).lower()
    return shown(name, value)


def _kind(reason: str) -> str:
    return _TOO_LARGE if reason.startswith(_TOO_LARGE) else reason
