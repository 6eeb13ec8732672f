"""Points of a sweep in its table: their error bars, and which of them have a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clustersim.measure.deciding import bar_of
from clustersim.measure.error_bars import BAR, BAR_COLUMNS

if TYPE_CHECKING:
    import pandas

    from clustersim.measure.error_bars import ErrorBar

STATUS: Final = "status"
_WITHOUT_RESULT: Final = ("infeasible", "failed")
"""Statuses of points of a sweep that have nothing to draw."""


def table_bars(frame: pandas.DataFrame) -> list[ErrorBar | None]:
    """Return the error bar of each row; None for all of a table of an earlier version, and for rows without a run."""
    if not all(name in frame.columns for name in BAR_COLUMNS):
        return [None] * len(frame)
    bars = frame[list(BAR_COLUMNS)].rename(columns=lambda name: name.removeprefix(BAR))
    known = bars.notna().all(axis="columns")
    rows = bars.to_dict("records")
    return [bar_of({str(name): value for name, value in row.items()}) if there else None for row, there in zip(rows, known, strict=True)]


def have_results(frame: pandas.DataFrame) -> list[bool]:
    """Return for each row whether it has a result, by its status; a table without statuses has results only."""
    return [True] * len(frame) if STATUS not in frame.columns else (~frame[STATUS].isin(_WITHOUT_RESULT)).tolist()
