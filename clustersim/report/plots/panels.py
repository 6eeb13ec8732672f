"""Draw measured against predicted: panels side by side with the same axes, a diagonal with its band, a ring around the farthest."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from clustersim.report.palette import HOST, IDLE
from clustersim.report.pictures import Panel, Picture
from clustersim.report.plots.canvas import FAINT_INK, INK, WIDTH_PX, Margins, draw_grid, new_figure, save_figure, style, write

HEIGHT_PX: Final = 560
_BETWEEN_PX: Final = 40
"""Room to the right of each panel."""
_MARGINS: Final = Margins(left=100, right=16, top=118, bottom=62)
_FINDING_LETTERS: Final = 90
"""Letters of a line of the finding."""
_ROOM: Final = 0.07
"""Left free at each end of an axis, as a share of it."""


def draw(picture: Picture) -> Figure:
    """Return a picture as a figure, ``WIDTH_PX`` wide."""
    figure = new_figure(HEIGHT_PX)
    limits = _limits(picture)
    for index, panel in enumerate(picture.panels):
        ax = _axes(figure, len(picture.panels), index)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(*limits)
        ax.set_ylim(*limits)
        _draw_scales(ax, picture, first=index == 0)
        _draw_band(ax, limits, picture.band_fraction)
        _draw_points(ax, panel)
        _draw_words(ax, panel)
    _caption(figure, picture)
    return figure


def write_picture(picture: Picture, file: Path) -> None:
    """Write a picture into a file whose suffix is ``.png`` or ``.svg``, without versions or times in it."""
    with style():
        save_figure(draw(picture), file)


def _axes(figure: Figure, n_panels: int, index: int) -> Axes:
    width_px = (WIDTH_PX - _MARGINS.left - _MARGINS.right - n_panels * _BETWEEN_PX) / n_panels
    left_px = _MARGINS.left + index * (width_px + _BETWEEN_PX)
    height_px = HEIGHT_PX - _MARGINS.top - _MARGINS.bottom
    return figure.add_axes((left_px / WIDTH_PX, _MARGINS.bottom / HEIGHT_PX, width_px / WIDTH_PX, height_px / HEIGHT_PX))


def _limits(picture: Picture) -> tuple[float, float]:
    """Return the ends of both axes of all panels."""
    values = [value for panel in picture.panels for group in panel.groups for point in group.points for value in point]
    low, high = np.log(min(values)), np.log(max(values))
    room = _ROOM * max(high - low, 0.1)
    return float(np.exp(low - room)), float(np.exp(high + room))


def _draw_scales(ax: Axes, picture: Picture, *, first: bool) -> None:
    low, high = ax.get_xlim()
    shown = [(at, text) for at, text in picture.ticks if low <= at <= high]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([at for at, _ in shown], [text for _, text in shown])
        axis.set_minor_locator(NullLocator())
    draw_grid(ax)
    ax.set_xlabel("measured", loc="right")
    if first:
        ax.set_ylabel("predicted", loc="top")
    else:
        ax.tick_params(axis="y", length=0, labelleft=False)


def _draw_band(ax: Axes, limits: tuple[float, float], fraction: float) -> None:
    ends = np.array(limits)
    ax.fill_between(ends, ends * (1 - fraction), ends * (1 + fraction), color=IDLE, linewidth=0, zorder=0)
    ax.plot(ends, ends, color=HOST, linewidth=0.8, zorder=1)


def _draw_points(ax: Axes, panel: Panel) -> None:
    for group in panel.groups:
        xs, ys = ([point[axis] for point in group.points] for axis in (0, 1))
        (points,) = ax.plot(xs, ys, color=group.colour, linestyle="none", marker="o", zorder=3)
        points.set(markersize=5.5, markeredgecolor="white", markeredgewidth=0.6)
    x, y = panel.ring
    ax.plot([x], [y], marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.1, zorder=5)


def _draw_words(ax: Axes, panel: Panel) -> None:
    write(ax, panel.title, (0, 1), (0, 8), of="axes fraction", va="baseline", fontsize=10.5, fontweight="bold")
    write(ax, panel.remark, (1, 0), (-2, 6), of="axes fraction", ha="right", va="bottom", color=FAINT_INK, linespacing=1.4)


def _caption(figure: Figure, picture: Picture) -> None:
    left, at_px = _MARGINS.left / WIDTH_PX, 30
    for line in textwrap.wrap(picture.finding, _FINDING_LETTERS):
        figure.text(left, 1 - at_px / HEIGHT_PX, line, fontsize=14, fontweight="bold", va="baseline")
        at_px += 24
    figure.text(left, 1 - at_px / HEIGHT_PX, picture.subtitle, fontsize=10, color=FAINT_INK, va="baseline")
