"""Draw panels side by side: the same axes, curves with their labels where they end, a ring around what is worth a note."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from clustersim.report.palette import HOST, IDLE
from clustersim.report.pictures import Curve, Note, Panel, Picture
from clustersim.report.plots.breakdown import spread
from clustersim.report.plots.canvas import DPI, FAINT_INK, INK, WIDTH_PX, Margins, save_figure, size_px, style

_MARGINS: Final = Margins(left=100, right=16, top=118, bottom=62)
_LABEL_POINTS: Final = 9.0
_LINE_PX: Final = 15.0
"""From one label to the next."""
_ROOM: Final = 0.07
"""Left free at each end of an axis, as a share of it."""
_DASHES: Final = {"solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.4)), "none": "none"}


def draw(picture: Picture) -> Figure:
    """Return a picture as a figure, ``WIDTH_PX`` wide."""
    figure = Figure(figsize=(WIDTH_PX / DPI, picture.height_px / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    x_limits, y_limits = _limits(picture, 0), _limits(picture, 1)
    for index, panel in enumerate(picture.panels):
        ax = _axes(figure, picture, index)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(*x_limits)
        ax.set_ylim(*y_limits)
        _draw_scales(ax, picture, first=index == 0)
        if picture.band_fraction is not None:
            _draw_band(ax, x_limits, picture.band_fraction)
        _draw_curves(ax, panel)
        _draw_words(ax, panel)
    _caption(figure, picture)
    return figure


def write_picture(picture: Picture, folder: Path) -> None:
    """Write a picture as PNG and as SVG, without versions or times in them."""
    write_picture_file(picture, folder / f"{picture.name}.png")
    write_picture_file(picture, folder / f"{picture.name}.svg")


def write_picture_file(picture: Picture, file: Path) -> None:
    """Write a picture into a file whose suffix is ``.png`` or ``.svg``."""
    with style():
        save_figure(draw(picture), file)


def _axes(figure: Figure, picture: Picture, index: int) -> Axes:
    n_panels = len(picture.panels)
    width_px = (WIDTH_PX - _MARGINS.left - _MARGINS.right - n_panels * picture.label_px) / n_panels
    left_px = _MARGINS.left + index * (width_px + picture.label_px)
    height_px = picture.height_px - _MARGINS.top - _MARGINS.bottom
    return figure.add_axes((left_px / WIDTH_PX, _MARGINS.bottom / picture.height_px, width_px / WIDTH_PX, height_px / picture.height_px))


def _limits(picture: Picture, axis: int) -> tuple[float, float]:
    """Return the ends of an axis that all panels share; both axes of a picture with a diagonal have the same."""
    axes = (0, 1) if picture.band_fraction is not None else (axis,)
    values = [point[one] for one in axes for panel in picture.panels for curve in panel.curves for point in curve.points]
    low, high = np.log(min(values)), np.log(max(values))
    room = _ROOM * max(high - low, 0.1)
    return float(np.exp(low - room)), float(np.exp(high + room))


def _draw_scales(ax: Axes, picture: Picture, *, first: bool) -> None:
    for axis, given, limits in ((ax.xaxis, picture.x, ax.get_xlim()), (ax.yaxis, picture.y, ax.get_ylim())):
        shown = [(at, text) for at, text in given.ticks if limits[0] <= at <= limits[1]]
        axis.set_ticks([at for at, _ in shown], [text for _, text in shown])
        axis.set_minor_locator(NullLocator())
    ax.grid(axis="y", color=IDLE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(picture.x.label, loc="right")
    if first:
        ax.set_ylabel(picture.y.label, loc="top")
    else:
        ax.tick_params(axis="y", length=0, labelleft=False)


def _draw_band(ax: Axes, limits: tuple[float, float], fraction: float) -> None:
    ends = np.array(limits)
    ax.fill_between(ends, ends * (1 - fraction), ends * (1 + fraction), color=IDLE, linewidth=0, zorder=0)
    ax.plot(ends, ends, color=HOST, linewidth=0.8, zorder=1)


def _draw_curves(ax: Axes, panel: Panel) -> None:
    for curve in panel.curves:
        xs, ys = ([point[axis] for point in curve.points] for axis in (0, 1))
        ax.plot(
            xs,
            ys,
            color=curve.colour,
            linestyle=_DASHES[curve.line],
            linewidth=2.6 if curve.strong else 1.6,
            marker="o",
            markersize=5.5 if curve.line == "none" else 3.4,
            markeredgecolor="white",
            markeredgewidth=0.6 if curve.line == "none" else 0.0,
            zorder=4 if curve.strong else 3,
        )
    for note in panel.notes:
        _draw_note(ax, note)
    _label_ends(ax, [curve for curve in panel.curves if curve.line != "none"])


def _draw_words(ax: Axes, panel: Panel) -> None:
    ax.annotate(panel.title, (0, 1), xytext=(0, 8), xycoords="axes fraction", textcoords="offset points", fontsize=10.5, fontweight="bold")
    ax.annotate(
        panel.remark,
        (1, 0),
        xytext=(-2, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=_LABEL_POINTS,
        color=FAINT_INK,
        linespacing=1.4,
    )


def _draw_note(ax: Axes, note: Note) -> None:
    ax.plot([note.x], [note.y], marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.1, zorder=5)
    if not note.text:
        return
    upper, left = note.corner.startswith("upper"), note.corner.endswith("left")
    ax.annotate(
        note.text,
        (note.x, note.y),
        xytext=(-4 if left else 4, 5 if upper else -5),
        textcoords="offset points",
        ha="right" if left else "left",
        va="bottom" if upper else "top",
        fontsize=_LABEL_POINTS,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        zorder=4.5,
    )


def _label_ends(ax: Axes, curves: Sequence[Curve]) -> None:
    """Write the labels of curves to the right of the panel, in the order in which they end."""
    height_px = size_px(ax)[1]
    ordered = sorted(curves, key=lambda curve: curve.points[-1][1])
    wanted_px = [float(ax.transData.transform(curve.points[-1])[1]) - ax.get_window_extent().y0 for curve in ordered]
    places_px = spread(wanted_px, [_LINE_PX] * len(ordered), height_px, between_px=0.0)
    for curve, place_px in zip(ordered, places_px, strict=True):
        ax.annotate(
            curve.label,
            curve.points[-1],
            xytext=(1.0 + 14 / size_px(ax)[0], place_px / height_px),
            textcoords="axes fraction",
            va="center",
            fontsize=_LABEL_POINTS,
            fontweight="bold" if curve.strong else "normal",
            arrowprops={"arrowstyle": "-", "color": curve.colour, "linewidth": 0.8, "shrinkA": 1.0, "shrinkB": 3.0, "relpos": (0.0, 0.5)},
        )


def _caption(figure: Figure, picture: Picture) -> None:
    left, height_px = _MARGINS.left / WIDTH_PX, picture.height_px
    size = 14.0 * min(1.0, 118 / max(len(picture.finding), 1))
    figure.text(left, 1 - 34 / height_px, picture.finding, fontsize=size, fontweight="bold", va="baseline")
    figure.text(left, 1 - 58 / height_px, picture.subtitle, fontsize=10, color=FAINT_INK, va="baseline")
