"""A figure over one key that was swept: a line for each value of a second one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from clustersim.errors import ScenarioError
from clustersim.measure.deciding import figures_at
from clustersim.measure.error_bars import ErrorBar
from clustersim.report import palette
from clustersim.report.plots.canvas import DPI, FloatArray, Margins, caption, draw_grid, new_axes
from clustersim.report.plots.heatmap import (
    axis_text,
    best_cells,
    figure_of,
    finding,
    keys_of,
    label_of,
    near_best,
    shown_unit,
    table_bars,
    values_of,
)

if TYPE_CHECKING:
    import pandas

HEIGHT_PX: Final = 560
COLOURS: Final = (palette.FORWARD, palette.EXPOSED, palette.BACKWARD, *palette.DIMENSION_COLOURS.values())

_MARGINS: Final = Margins(left=130, right=250, top=84, bottom=64)
_MARKERS: Final = "osD^vP*X"
_ASIDE_PX: Final = 7.0
"""Pixels between the lines, whose points and intervals would cover each other."""
_HIGH: Final = 0.5
"""Share of the height from which on lines begin above an axis that does not begin at 0."""
_WIDE: Final = 8.0
"""Largest over least value from which on an axis is logarithmic."""


def sweep_lines(frame: pandas.DataFrame, ax: Axes | None = None, *, figure: str | None = None) -> Axes:
    """Draw a figure over the first key that varies, a line for each value of the second, with the interval of each point.

    Parameters
    ----------
    frame
        A row for each point, as a sweep writes it. Of points that differ in further keys the best is drawn.
    figure
        The column to draw; MFU where it is there, or else as a heat map has it.

    Raises
    ------
    ScenarioError
        When no key varies, there are more lines than colours, or there is no such column.
    """
    keys = keys_of(frame)
    if not keys:
        raise ScenarioError("lines need a key that varies", hint="sweep one key or two, such as strategy.tp")
    name = figure_of(frame, keys, figure or ("mfu" if "mfu" in frame.columns else None))
    # With one key alone all points are on one line.
    second = keys[1] if len(keys) > 1 else "all"
    table = frame if len(keys) > 1 else frame.assign(all="")
    columns, rows = values_of(table, keys[0]), values_of(table, second)
    if len(rows) > len(COLOURS):
        raise ScenarioError(f"{second} has {len(rows)} values, a line each", hint=f"sweep at most {len(COLOURS)}, or draw a heatmap")
    cells, _, places = best_cells(table, (keys[0], second), name, (rows, columns))
    if not np.isfinite(cells).any():
        raise ScenarioError(f"no point has a result in {name}", hint="see the column reason")
    times, unit = shown_unit(cells, name)
    shown = times * cells
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    at = _places(ax, columns)
    bars = table_bars(table)
    for number, row in enumerate(rows):
        label = f"{second.rpartition('.')[2]} {label_of(row)}" if len(keys) > 1 else ""
        intervals = [_interval(name, bars[place] if place >= 0 else None) for place in map(int, places[number])]
        _draw_line(ax, (_moved(ax, at, _ASIDE_PX * (number - (len(rows) - 1) / 2)), shown[number]), intervals, number, label)
    if len(rows) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=10, borderaxespad=0)
    low, high = ax.get_ylim()
    from_zero = low < _HIGH * high
    ax.set_ylim(bottom=0 if from_zero else low)
    draw_grid(ax)
    ax.set_xlabel(keys[0], loc="right")
    ax.set_ylabel(axis_text(name, unit), loc="top")
    near = near_best(cells, places, name, bars)
    caption(ax, finding(cells, (rows, columns), (keys[0], second), name, near), _subtitle(keys, cells, bars, from_zero=from_zero))
    return ax


def _places(ax: Axes, columns: Sequence[object]) -> FloatArray:
    """Return where the values of the key stand: numbers by their size, or by their logarithm; words side by side."""
    if not all(isinstance(value, int | float) for value in columns):
        at = np.arange(len(columns), dtype=np.float64)
    else:
        at = np.array([float(str(value)) for value in columns])
        if at.min() > 0 and at.max() >= _WIDE * at.min():
            ax.set_xscale("log", base=2)
    ax.set_xticks(at.tolist(), [label_of(value) for value in columns])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.update_datalim([(place, 0.0) for place in at], updatey=False)
    ax.autoscale_view(scaley=False)
    ax.set_autoscalex_on(False)
    return at


def _moved(ax: Axes, at: FloatArray, aside_px: float) -> FloatArray:
    """Return places on the horizontal axis some pixels aside."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    places = ax.transData.transform(np.column_stack([at, np.zeros_like(at)]))
    places[:, 0] += aside_px * figure.dpi / DPI
    return ax.transData.inverted().transform(places)[:, 0]


def _interval(name: str, bar: ErrorBar | None) -> tuple[float, float]:
    """Return the ends of the interval over a figure that follows the step time; both 1 for any other."""
    if bar is None:
        return 1.0, 1.0
    ends = [figures_at({name: 1.0}, fraction)[name] for fraction in (bar.least_fraction, bar.most_fraction)]
    return min(ends), max(ends)


def _draw_line(ax: Axes, points: tuple[FloatArray, FloatArray], intervals: Sequence[tuple[float, float]], number: int, label: str) -> None:
    """Draw one line and its intervals."""
    at, values = points
    colour, known = COLOURS[number], np.isfinite(values)
    marker = _MARKERS[number % len(_MARKERS)]
    (line,) = ax.plot(at[known], values[known], color=colour, linewidth=2.0, label=label, zorder=3)
    line.set(marker=marker, markersize=7, markeredgecolor="white")
    least, most = np.array(intervals).T
    ax.vlines(at[known], (values * least)[known], (values * most)[known], color=colour, linewidth=1.0, alpha=0.6, zorder=2)


def _subtitle(keys: Sequence[str], cells: FloatArray, bars: Sequence[ErrorBar | None], *, from_zero: bool) -> str:
    parts = ["80 % interval of each point as a thin line"] if any(bar is not None for bar in bars) else []
    missing = int((~np.isfinite(cells)).sum())
    parts += [f"{missing} of {cells.size} do not fit or have no result"] if missing else []
    parts += [f"of {', '.join(keys[2:])} the best"] if len(keys) > 2 else []
    parts += [] if from_zero else ["the axis does not begin at 0"]
    return "; ".join(parts) or "a point for each run"
