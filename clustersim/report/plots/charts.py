"""A few figures of a few runs as labelled lines or bars, in panels side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

from clustersim.report.palette import DIMENSION_COLOURS, IDLE_HATCH
from clustersim.report.pictures import Chart, ChartPanel, Series, Unit
from clustersim.report.plots.breakdown import spread
from clustersim.report.plots.canvas import FAINT_INK, INK, WIDTH_PX, draw_grid, new_figure, size_px, write

COLOURS: Final = tuple(DIMENSION_COLOURS[name] for name in ("pp", "ep", "dp", "tp", "ps", "offload"))
_MARKS: Final = ("o", "s", "^", "D", "v", "P")
_LEFT_PX: Final = 96
_RIGHT_PX: Final = 16
_BOTTOM_PX: Final = 62
_LINE_PX: Final = 16.0
_TITLE_POINTS: Final = 14.0
_TITLE_PX: Final = 24
_TITLE_LETTERS: Final = 94
"""Letters of one title line."""
_LABEL_POINTS: Final = 9.5
_LABEL_PX: Final = 150
"""Room to the right of a panel of lines."""
_LINES_PX: Final = 330
_BAR_PX: Final = 26
_HEADING_PX: Final = 38
"""Above the bars of a point."""
_NAMES_PX: Final = 300
"""Room to the left for the names of bars."""
_VALUE_PX: Final = 150
"""Room to the right of the longest bar for its value."""
_FORMATS: Final[Mapping[Unit, Formatter]] = MappingProxyType(
    {
        "s": EngFormatter(unit="s"),
        "B": EngFormatter(unit="B"),
        "GiB": StrMethodFormatter("{x:g} GiB"),
        "%": PercentFormatter(1.0, decimals=0, symbol=" %"),
        "": EngFormatter(),
    }
)


def draw_chart(chart: Chart) -> Figure:
    """Return a chart as a figure, ``WIDTH_PX`` wide."""
    title = textwrap.wrap(chart.finding, _TITLE_LETTERS)
    top_px = 34 + _TITLE_PX * len(title) + 62
    inner_px = _LINES_PX if chart.places is not None else len(chart.points) * _group_px(chart)
    bottom_px = _BOTTOM_PX if chart.places is not None else 24
    height_px = top_px + inner_px + bottom_px
    figure = new_figure(height_px)
    for index, panel in enumerate(chart.panels):
        left_px, width_px = _across(chart, index)
        ax = figure.add_axes((left_px / WIDTH_PX, bottom_px / height_px, width_px / WIDTH_PX, inner_px / height_px))
        if chart.places is not None:
            _draw_lines(ax, chart, panel, chart.places)
        else:
            _draw_bars(ax, chart, panel, first=index == 0)
        write(ax, panel.label, (0, 1), (0, 10), of="axes fraction", va="baseline", fontsize=10.5, fontweight="bold")
    left = 24 / WIDTH_PX
    for index, line in enumerate(title):
        figure.text(left, 1 - (38 + _TITLE_PX * index) / height_px, line, fontsize=_TITLE_POINTS, fontweight="bold", va="baseline")
    under_px = 38 + _TITLE_PX * len(title)
    figure.text(left, 1 - under_px / height_px, chart.subtitle, fontsize=10, color=FAINT_INK, va="baseline")
    return figure


def _across(chart: Chart, index: int) -> tuple[float, float]:
    n_panels = len(chart.panels)
    if chart.places is not None:
        width_px = (WIDTH_PX - _RIGHT_PX) / n_panels
        return index * width_px + _LEFT_PX, width_px - _LEFT_PX - _LABEL_PX
    width_px = (WIDTH_PX - _NAMES_PX - _RIGHT_PX) / n_panels
    return _NAMES_PX + index * width_px, width_px - _VALUE_PX


def _draw_lines(ax: Axes, chart: Chart, panel: ChartPanel, places: tuple[float, ...]) -> None:
    ax.set_xscale("log", base=2)
    most = max((value for series in panel.series for value in series.values if value is not None), default=0.0)
    ends: list[tuple[float, str, str, tuple[float, float]]] = []
    for series in panel.series:
        colour = COLOURS[series.colour % len(COLOURS)]
        found = [(x, y, odd) for x, y, odd in zip(places, series.values, series.doubtful, strict=True) if y is not None]
        ax.plot([x for x, _, _ in found], [y for _, y, _ in found], color=colour, linewidth=1.8, zorder=3)
        for x, y, odd in found:
            face = "white" if odd else colour
            ax.plot([x], [y], marker=_MARKS[series.colour % len(_MARKS)], color=colour, markerfacecolor=face, markersize=6.5, zorder=4)
        if found:
            ends.append((found[-1][1], series.label, colour, found[-1][:2]))
    ax.set_ylim(0, 1.08 * most or 1.0)
    ax.set_xlim(min(places) / 1.12, max(places) * 1.12)
    ax.set_xticks(list(places), list(chart.points))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6))
    ax.yaxis.set_major_formatter(_FORMATS[panel.unit])
    draw_grid(ax)
    ax.set_xlabel(chart.axis, loc="right", color=INK)
    _label_ends(ax, ends)


def _label_ends(ax: Axes, ends: list[tuple[float, str, str, tuple[float, float]]]) -> None:
    width_px, height_px = size_px(ax)
    ordered = sorted(ends)
    wanted_px = [float(ax.transData.transform(end)[1]) - ax.get_window_extent().y0 for _, _, _, end in ordered]
    wrapped = ["\n".join(textwrap.wrap(label, 22)) for _, label, _, _ in ordered]
    heights = [_LINE_PX * (text.count("\n") + 1) for text in wrapped]
    places_px = spread(wanted_px, heights, height_px, between_px=2.0)
    for (_, _, colour, end), text, place_px in zip(ordered, wrapped, places_px, strict=True):
        ax.annotate(
            text,
            end,
            xytext=(1.0 + 14 / width_px, place_px / height_px),
            textcoords="axes fraction",
            va="center",
            fontsize=_LABEL_POINTS,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1.0, "shrinkB": 4.0, "relpos": (0.0, 0.5)},
        )


def _draw_bars(ax: Axes, chart: Chart, panel: ChartPanel, *, first: bool) -> None:
    most = max((value for series in panel.series for value in series.values if value is not None), default=0.0)
    cases = _cases(chart)
    for point, name in enumerate(chart.points):
        top_px = point * _group_px(chart)
        if first:
            _write_left(ax, name, top_px + _HEADING_PX - _BAR_PX / 2, fontweight="bold")
        for series in panel.series:
            y = top_px + _HEADING_PX + (list(cases).index(series.colour) + 0.5) * _BAR_PX
            _draw_bar(ax, series, point, y)
        for row, label in enumerate(cases.values() if first and len(cases) > 1 else ()):
            _write_left(ax, label, top_px + _HEADING_PX + (row + 0.5) * _BAR_PX)
    ax.set_xlim(0, most or 1.0)
    ax.set_ylim(len(chart.points) * _group_px(chart), 0)
    ax.yaxis.set_visible(False)
    ax.xaxis.set_visible(False)
    ax.spines["bottom"].set_visible(False)


def _cases(chart: Chart) -> dict[int, str]:
    """Return the labels of all cases by their numbers: the rows below each point, the same in all panels."""
    return dict(sorted((series.colour, series.label) for panel in chart.panels for series in panel.series))


def _group_px(chart: Chart) -> int:
    return _HEADING_PX + _BAR_PX * len(_cases(chart))


def _write_left(ax: Axes, text: str, y: float, **looks: object) -> None:
    write(ax, text, (0, y), (-8, 0), of=("axes fraction", "data"), ha="right", fontsize=10.0, **looks)


def _draw_bar(ax: Axes, series: Series, point: int, y: float) -> None:
    value, colour = series.values[point], COLOURS[series.colour % len(COLOURS)]
    if value is not None:
        hatch = IDLE_HATCH if series.doubtful[point] else None
        ax.barh(y, value, height=_BAR_PX * 0.78, color="white" if hatch else colour, edgecolor=colour, hatch=hatch, linewidth=1.0)
    write(ax, series.texts[point], (value or 0.0, y), (5, 0))
