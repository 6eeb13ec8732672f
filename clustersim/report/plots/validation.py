"""Predicted over measured step times: a point for each published run, and the diagonal."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from clustersim.report.facts import percent_text
from clustersim.report.palette import DIMENSION_COLOURS, IDLE
from clustersim.report.plots.canvas import FAINT_INK, INK, FloatArray, Margins, caption, new_axes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

HEIGHT_PX: Final = 900
COLUMNS: Final = ("source", "row", "measured_s", "predicted_s")
BAND_FRACTION: Final = 0.1
MOST_NAMED: Final = 3

_MARGINS: Final = Margins(left=110, right=560, top=84, bottom=66)
_MARKERS: Final = "osD^vPX*<>hp"


def measured_and_predicted(frame: pandas.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw predicted over measured step times, a sign for each source, and name those furthest off.

    Parameters
    ----------
    frame
        With the columns of :data:`COLUMNS`: one row for each published run.
    """
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    measured, predicted = (frame[name].to_numpy(dtype=np.float64) for name in COLUMNS[2:])
    low, high = float(min(measured.min(), predicted.min())) / 1.5, float(max(measured.max(), predicted.max())) * 1.5
    ends = np.array([low, high])
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.fill_between(ends, ends * (1 - BAND_FRACTION), ends * (1 + BAND_FRACTION), color=IDLE, linewidth=0, zorder=0)
    ax.plot(ends, ends, color=FAINT_INK, linewidth=0.8, zorder=1)
    colours = list(DIMENSION_COLOURS.values())
    sources = list(dict.fromkeys(str(name) for name in frame["source"]))
    errors = predicted / measured - 1.0
    for place, source in enumerate(sources):
        own = (frame["source"] == source).to_numpy()
        error = float(np.abs(errors[own]).mean())
        ax.plot(
            measured[own],
            predicted[own],
            color=colours[place % len(colours)],
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linestyle="none",
            alpha=0.9,
            label=f"{source}: {int(own.sum())} rows, {percent_text(error)} off",
            zorder=3,
        )
    _name_worst(ax, frame, errors)
    decades = [10.0**power for power in range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator(decades))
        axis.set_ticklabels([f"{value:g} s" for value in decades])
        axis.set_minor_locator(NullLocator())
    ax.set_xlabel("measured time of a step", loc="right")
    ax.set_ylabel("predicted", loc="top")
    ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=9.5, handlelength=1.0, borderaxespad=0)
    near = float((np.abs(errors) <= BAND_FRACTION).mean())
    title = f"{len(frame):,} published runs: {percent_text(near)} are predicted within {100 * BAND_FRACTION:.0f} %"
    caption(
        ax,
        title,
        f"mean absolute error {percent_text(float(np.abs(errors).mean()))}; the band is {100 * BAND_FRACTION:.0f} % to either side",
    )
    return ax


def _name_worst(ax: Axes, frame: pandas.DataFrame, errors: FloatArray) -> None:
    """Write beside the points furthest off which they are."""
    lines = ["furthest off"]
    for number, place in enumerate(np.argsort(-np.abs(errors), kind="stable")[:MOST_NAMED].tolist(), start=1):
        x, y = float(frame["measured_s"].iloc[place]), float(frame["predicted_s"].iloc[place])
        ax.annotate(str(number), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=9, fontweight="bold")
        lines.append(f"{number}  {frame['row'].iloc[place]}: {100 * errors.item(place):+.1f} %")
    ax.annotate("\n".join(lines), (1.02, 0.0), xycoords="axes fraction", va="bottom", fontsize=9.5, color=INK, linespacing=1.5)
