"""A figure over two swept keys: a cell for each pair of values, hatched where the plan does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.documents.near_names import choices_hint
from clustersim.errors import ScenarioError
from clustersim.measure.deciding import UNDECIDED, Judged, bar_of, judged_by, more_is_better, standing_text, undecided
from clustersim.measure.error_bars import BAR, BAR_COLUMNS, ErrorBar
from clustersim.report import palette
from clustersim.report.facts import figure_text, is_share
from clustersim.report.plots.canvas import (
    INK,
    FloatArray,
    Margins,
    add_boxes,
    caption,
    key,
    new_axes,
    note,
    paper,
    share_colour,
    size_px,
)

if TYPE_CHECKING:
    import pandas


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


BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

ROW_PX: Final = 64
TALLEST_PX: Final = 432

_MARGINS: Final = Margins(left=150, right=60, top=84, bottom=104)
_FITS: Final = ("memory.fits", "memory_fits", "fits")
_LETTER_PX: Final = 8.0
_NEAR: Final = "≈ "


def sweep_heatmap(frame: pandas.DataFrame, ax: Axes | None = None, *, figure: str | None = None) -> Axes:
    """Draw a cell for each pair of values of the first two keys that vary, coloured by a figure.

    Parameters
    ----------
    frame
        A row for each point: columns of keys first, then of figures; ``memory.fits`` says what does not fit. Where several rows have the
        same pair, because more than two keys vary, the best of them is drawn.
    figure
        The column to draw; ``step_time_s`` where it is there, or else the first of numbers that is no key.

    Raises
    ------
    ScenarioError
        When fewer than two keys vary, or there is no such column.
    """
    keys = keys_of(frame)
    if len(keys) < 2:
        raise ScenarioError("a heat map needs two keys that vary", hint="sweep two keys, such as strategy.tp and strategy.pp")
    name = figure_of(frame, keys, figure)
    rows, columns = (values_of(frame, each) for each in keys[1::-1])
    cells, fits, places = best_cells(frame, keys, name, (rows, columns))
    near = near_best(cells, places, name, table_bars(frame))
    times, unit = shown_unit(cells, name)
    ax = new_axes(_MARGINS.top + _MARGINS.bottom + min(ROW_PX * max(len(rows), 3), TALLEST_PX), _MARGINS) if ax is None else ax
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    known = cells[np.isfinite(cells)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    width_px, height_px = size_px(ax)
    best = best_of(cells, name)
    for row in range(len(rows)):
        for column in range(len(columns)):
            value, box = float(cells[row, column]), np.array([[column, column + 1.0, row + 1.0, float(row)]])
            if not np.isfinite(value) or not fits[row, column]:
                add_boxes(ax, box, palette.IDLE, hatched=True)
                text, ink = ("infeasible" if not fits[row, column] else "", INK)
            else:
                colour = share_colour((value - low) / (high - low) if high > low else 0.5)
                add_boxes(ax, box, colour, edge_px=2.0)
                text, ink = f"{_NEAR if near[row, column] else ''}{short(times * value)}", palette.text_colour(colour)
            if (len(text) + 1) * _LETTER_PX <= width_px / len(columns) and height_px / len(rows) >= 16:
                behind = paper(1.0, palette.IDLE) if not fits[row, column] else None
                weight = "bold" if (row, column) == best else "normal"
                ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9.5, fontweight=weight, color=ink, bbox=behind)
    ax.set_xticks([place + 0.5 for place in range(len(columns))], [label_of(value) for value in columns])
    ax.set_yticks([place + 0.5 for place in range(len(rows))], [label_of(value) for value in rows])
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel(keys[0], loc="right")
    ax.set_ylabel(keys[1], loc="top")
    caption(ax, finding(cells, (rows, columns), keys, name, near), _subtitle(axis_text(name, unit), keys, fits))
    if not (fits & np.isfinite(cells)).all():
        key(ax, [("does not fit in memory, or has no result", palette.IDLE)], below_px=66)
    note(ax, f"{_NEAR.strip()} {UNDECIDED} against the best" if near.any() else "", below_px=44)
    return ax


def keys_of(frame: pandas.DataFrame) -> list[str]:
    """Return the columns that were swept: those in front of the figures that have more than one value."""
    found: list[str] = []
    for name in map(str, frame.columns):
        if name in {"point", "label", "name"}:
            continue
        # Figures begin where the result does; keys of a scenario have no unit in their name.
        if name.startswith(
            (STATUS, "error", "hash", "schema_version", "scenario", "ranks", "gpus", "step_time_s", "memory", "samples_per_s")
        ):
            break
        if frame[name].nunique() > 1:
            found.append(name)
    return found


def figure_of(frame: pandas.DataFrame, keys: Sequence[str], figure: str | None) -> str:
    """Return the column to draw: the asked one, the step time, or the first of numbers."""
    names = [str(name) for name in frame.columns]
    if figure is not None:
        if figure not in names:
            raise ScenarioError(f"there is no column '{figure}'", hint=choices_hint(figure, names))
        return figure
    numbers = [name for name in names if name not in keys and frame[name].dtype.kind in "fi"]
    if not numbers:
        raise ScenarioError("the table has no figure to draw", hint="a column of numbers such as step_time_s")
    return "step_time_s" if "step_time_s" in numbers else numbers[0]


def values_of(frame: pandas.DataFrame, name: str) -> list[object]:
    """Return the values of a key: numbers by size, others as they come."""
    found: list[object] = list(dict.fromkeys(frame[name].dropna().tolist()))
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found, key=float) if numbers else found  # type: ignore[arg-type]


def best_cells(
    frame: pandas.DataFrame, keys: Sequence[str], name: str, axes: tuple[list[object], list[object]]
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Return the best value of each cell, whether any point of it fits, and the index of the best point; -1 without any."""
    rows, columns = axes
    cells = np.full((len(rows), len(columns)), np.nan)
    fits = np.ones(cells.shape, dtype=np.bool_)
    places = np.full(cells.shape, -1, dtype=np.int64)
    fitting_rows = _fits(frame)
    better = np.fmax if more_is_better(name) else np.fmin
    for place, row in enumerate(frame[keys[1]].tolist()):
        column = frame[keys[0]].iloc[place]
        if row not in rows or column not in columns:
            continue
        at = rows.index(row), columns.index(column)
        fitting = fitting_rows[place]
        value = float(frame[name].iloc[place])
        if fitting and np.isfinite(value):
            cells[at] = better(cells[at], value)
            places[at] = place if cells[at] == value else places[at]
        elif not np.isfinite(cells[at]):
            fits[at] = fitting
    fits |= np.isfinite(cells)
    return cells, fits, places


def near_best(cells: FloatArray, places: IntArray, name: str, bars: Sequence[ErrorBar | None]) -> BoolArray:
    """Return the cells within the error bars of the best."""
    near = np.zeros(cells.shape, dtype=np.bool_)
    runs: list[tuple[float, int, int, Judged]] = []
    for row in range(cells.shape[0]):
        for column in range(cells.shape[1]):
            place, value = int(places[row, column]), float(cells[row, column])
            judged = judged_by(name, value, bars[place]) if place >= 0 else None
            if judged is not None:
                runs.append((judged.at(1.0), row, column, judged))
    runs.sort(key=lambda run: run[:3])
    for place in undecided([run[3] for run in runs]):
        near[runs[place][1:3]] = True
    return near


def _fits(frame: pandas.DataFrame) -> list[bool]:
    """Return for each point whether it fits: by its own column, or by its status."""
    column = next((each for each in _FITS if each in frame.columns), None)
    return have_results(frame) if column is None else [str(value).lower() in {"true", "1", "1.0"} for value in frame[column]]


def short(value: float) -> str:
    """Return a number in three digits, or whole from ten thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.3g}"


def label_of(value: object) -> str:
    """Return a value of a key as text."""
    return f"{value:g}" if isinstance(value, float) else str(value).replace('"', "")


def finding(cells: FloatArray, axes: tuple[Sequence[object], Sequence[object]], keys: Sequence[str], name: str, near: BoolArray) -> str:
    """Return the best cell, its value, and the cells within its error bars."""
    best = best_of(cells, name)
    if best is None:
        return f"no pair of {keys[0]} and {keys[1]} has a result"

    def named(row: int, column: int, names: Sequence[str]) -> str:
        second = f" with {names[1]} {label_of(axes[0][row])}" if len(axes[0]) > 1 else ""
        return f"{names[0]} {label_of(axes[1][column])}{second}"

    brief = [key.rpartition(".")[2] for key in keys]
    others = sorted(np.argwhere(near).tolist(), key=lambda at: abs(float(cells[*at]) - float(cells[best])))
    times, unit = shown_unit(cells, name)
    value = f"{short(times * float(cells[best]))}{' %' if unit == '%' else ''}"
    near_names = [named(row, column, brief) for row, column in others]
    return f"{standing_text(named(*best, keys), near_names)}: {figure_text(name, value, unit)}"


def shown_unit(cells: FloatArray, name: str) -> tuple[float, str]:
    """Return the factor and the unit in which values are shown: shares in percent, times below a second in ms; no unit of any other."""
    if is_share(name):
        return 100.0, "%"
    short_times = name.endswith("_s") and not name.endswith("_per_s") and np.nanmax(cells, initial=0.0) < 1.0
    return (1e3, "ms") if short_times else (1.0, "")


def axis_text(name: str, unit: str) -> str:
    """Return the words for a figure with the unit in which it is shown."""
    return f"{figure_text(name)}, %" if unit == "%" else figure_text(name, unit=unit)


def best_of(cells: FloatArray, name: str) -> tuple[int, int] | None:
    """Return row and column of the best cell; None without any."""
    if not np.isfinite(cells).any():
        return None
    row, column = np.unravel_index(int((np.nanargmax if more_is_better(name) else np.nanargmin)(cells)), cells.shape)
    return int(row), int(column)


def _subtitle(name: str, keys: Sequence[str], fits: BoolArray) -> str:
    more = f"; of {', '.join(keys[2:])} the best" if len(keys) > 2 else ""
    missing = "" if fits.all() else f"; {int((~fits).sum())} of {fits.size} do not fit"
    return f"{name} for each pair{more}, the best in bold{missing}"
