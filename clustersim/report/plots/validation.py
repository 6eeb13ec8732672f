"""Errors of predicted step times: a strip of points for each source of published runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.report.facts import percent_text
from clustersim.report.palette import EXPOSED, FORWARD, IDLE
from clustersim.report.plots.canvas import (
    FAINT_INK,
    INK,
    FloatArray,
    Margins,
    beside,
    caption,
    name_rows,
    new_axes,
    round_locator,
)
from clustersim.units.divisors import shortened

if TYPE_CHECKING:
    import pandas

ROW_PX: Final = 34
COLUMNS: Final = ("source", "row", "measured_s", "predicted_s")
BAND_FRACTION: Final = 0.1

_MARGINS: Final = Margins(left=270, right=440, top=84, bottom=66)
_LONGEST: Final = 30
"""Letters of a name beside a strip."""
_LANES: Final = np.array([0.0, 0.18, -0.18, 0.09, -0.09, 0.27, -0.27])
"""Heights in a strip of points that follow each other by error, so that they do not hide each other."""


def validation_errors(frame: pandas.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the error of each published run in a strip for each source, the source with the least mean error first.

    Parameters
    ----------
    frame
        With the columns of :data:`COLUMNS`: one row for each published run.
    """
    names = frame["source"].astype(str)
    percent = 100.0 * (frame["predicted_s"].to_numpy(dtype=np.float64) / frame["measured_s"].to_numpy(dtype=np.float64) - 1.0)
    means = {name: float(np.abs(percent[(names == name).to_numpy()]).mean()) for name in dict.fromkeys(names)}
    sources = sorted(means, key=lambda name: (means[name], name))
    ax = new_axes(_MARGINS.top + _MARGINS.bottom + ROW_PX * max(len(sources), 2), _MARGINS) if ax is None else ax
    band = 100.0 * BAND_FRACTION
    ax.set_xlim(1.08 * min(float(percent.min()), -1.5 * band), 1.08 * max(float(percent.max()), 1.5 * band))
    ax.set_ylim(len(sources) - 0.5, -0.5)
    ax.axvspan(-band, band, color=IDLE, linewidth=0, zorder=0)
    ax.axvline(0.0, color=FAINT_INK, linewidth=0.8, zorder=1)
    for place, source in enumerate(sources):
        own = (names == source).to_numpy()
        _draw_strip(ax, place, percent[own])
        worst = int(np.argmax(np.abs(percent[own])))
        row = shortened(str(frame["row"][own].iloc[worst]), _LONGEST)
        text = f"{means[source]:.1f} % off; furthest {percent[own].item(worst):+.1f} %, {row}"
        beside(ax, place, text, away_points=8, color=INK)
    name_rows(ax, range(len(sources)), [f"{source} ({int((names == source).sum())})" for source in sources])
    ax.tick_params(axis="y", labelcolor=INK)
    ax.xaxis.set_major_locator(round_locator(10))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
    ax.set_xlabel("predicted over measured step time", loc="right")
    near = float((np.abs(percent) <= band).mean())
    title = f"{len(frame):,} published runs: {percent_text(near)} are predicted within {band:.0f} %"
    mean = percent_text(float(np.abs(percent).mean()) / 100.0)
    caption(
        ax, title, f"a point for each run, orange outside the band of {band:.0f} %; mean absolute error {mean}; black: median of a source"
    )
    return ax


def _draw_strip(ax: Axes, place: int, percent: FloatArray) -> None:
    """Draw the runs of one source, and their median."""
    ordered = np.sort(percent)
    heights = place + _LANES[np.arange(len(ordered)) % len(_LANES)]
    outside = np.abs(ordered) > 100.0 * BAND_FRACTION
    for shown, colour in ((~outside, FORWARD), (outside, EXPOSED)):
        (points,) = ax.plot(ordered[shown], heights[shown], color=colour, marker="o", linestyle="none", alpha=0.55, zorder=3)
        points.set(markersize=4.5, markeredgewidth=0)
    middle = float(np.median(ordered))
    ax.plot([middle, middle], [place - 0.36, place + 0.36], color=INK, linewidth=1.8, zorder=4)
