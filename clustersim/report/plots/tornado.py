"""Effect of each figure on a number: bars to both sides of what it is now, the longest first."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from clustersim.measure.deciding import standing_text
from clustersim.report import palette
from clustersim.report.facts import figure_text
from clustersim.report.pictures import Tornado, VariedFigure
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, draw_grid, name_rows, new_axes, note, write

_ROW_PX: Final = 46
_MARGINS: Final = Margins(left=330, right=130, top=84, bottom=64)
_ROOM: Final = 0.16
"""Beside the longest bar, for what stands at its end, as a share of the width."""
_LOWER: Final = palette.FORWARD
_HIGHER: Final = palette.EXPOSED


def tornado(picture: Tornado, ax: Axes | None = None) -> Axes:
    """Draw a bar for each figure, blue where it is low and orange where it is high, each with its value at the end."""
    found = picture.sensitivity
    height_px = _MARGINS.top + _MARGINS.bottom + _ROW_PX * max(len(found.inputs), 2)
    ax = new_axes(height_px, _MARGINS) if ax is None else ax
    ends = [end for bar in found.inputs for end in bar.ends(found.case) if end is not None]
    least, most = min([found.value, *ends]), max([found.value, *ends])
    room = _ROOM * ((most - least) or abs(found.value) or 1.0)
    ax.set_xlim(least - room, most + room)
    ax.set_ylim(len(found.inputs) - 0.4, -0.6)
    for place, bar in enumerate(found.inputs):
        _draw_bar(ax, bar, bar.ends(found.case), place, found.value)
    ax.axvline(found.value, color=INK, linewidth=1.0, zorder=4)
    name_rows(ax, range(len(found.inputs)), [bar.name(found.case) for bar in found.inputs])
    ax.tick_params(axis="y", labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7))
    ax.ticklabel_format(axis="x", style="plain", useOffset=False)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    draw_grid(ax, "x", 0.7)
    ax.set_xlabel(figure_text(picture.metric), loc="right")
    caption(ax, picture.finding, picture.subtitle)
    note(ax, standing_text(picture.best, picture.undecided) if picture.best and picture.undecided else "", below_px=34)
    return ax


def _draw_bar(ax: Axes, bar: VariedFigure, numbers: tuple[float | None, float | None], place: int, base: float) -> None:
    ends = [
        (end, text, colour) for end, text, colour in zip(numbers, (bar.low, bar.high), (_LOWER, _HIGHER), strict=True) if end is not None
    ]
    # Where both lie on one side, the longer one is drawn first, so that the shorter one is seen.
    ends.sort(key=lambda end: -abs(end[0] - base))
    if ends and all(end == base for end, _, _ in ends):
        write(ax, f"{bar.low} to {bar.high}: no effect", (base, place), (5, 0), color=FAINT_INK)
        return
    right = bool(ends) and ends[0][0] >= base
    for end, text, colour in ends:
        ax.barh(place, end - base, left=base, height=0.62, color=colour, zorder=2)
        # The text of the shorter one stands on the other side, also where its bar does not.
        at = end if (end > base) == right else base
        aside, ha = (5, "left") if right else (-5, "right")
        write(ax, text, (at, place), (aside, 0), ha=ha, color=FAINT_INK if at == base else INK)
        right = not right
