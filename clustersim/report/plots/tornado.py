"""Effect of each figure on a number: bars to both sides of what it is now, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from clustersim.report import palette
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, draw_grid, name_rows, new_axes, note, write

_ROW_PX: Final = 46
_MARGINS: Final = Margins(left=330, right=130, top=84, bottom=64)
_ROOM: Final = 0.16
"""Beside the longest bar, for what stands at its end, as a share of the width."""
_LOWER: Final = palette.FORWARD
_HIGHER: Final = palette.EXPOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class TornadoBar:
    """One figure: its low and high value as text, and the number at either; None where there is none."""

    name: str
    low_text: str
    high_text: str
    low: float | None
    high: float | None
    note: str = ""
    """Such that the decision turns on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tornado:
    """A whole picture."""

    finding: str
    subtitle: str
    axis: str
    """Name and unit of the number."""
    base: float
    bars: Sequence[TornadoBar]
    """The longest first."""
    note: str = ""
    """Such that the difference is within the error bars."""


def tornado(picture: Tornado, ax: Axes | None = None) -> Axes:
    """Draw a bar for each figure, blue where it is low and orange where it is high, each with its value at the end."""
    height_px = _MARGINS.top + _MARGINS.bottom + _ROW_PX * max(len(picture.bars), 2)
    ax = new_axes(height_px, _MARGINS) if ax is None else ax
    ends = [end for bar in picture.bars for end in (bar.low, bar.high) if end is not None]
    least, most = min([picture.base, *ends]), max([picture.base, *ends])
    room = _ROOM * ((most - least) or abs(picture.base) or 1.0)
    ax.set_xlim(least - room, most + room)
    ax.set_ylim(len(picture.bars) - 0.4, -0.6)
    for place, bar in enumerate(picture.bars):
        _draw_bar(ax, bar, place, picture.base)
    ax.axvline(picture.base, color=INK, linewidth=1.0, zorder=4)
    name_rows(ax, range(len(picture.bars)), [f"{bar.name}\n{bar.note}" if bar.note else bar.name for bar in picture.bars])
    ax.tick_params(axis="y", labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7))
    ax.ticklabel_format(axis="x", style="plain", useOffset=False)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    draw_grid(ax, "x", 0.7)
    ax.set_xlabel(picture.axis, loc="right")
    caption(ax, picture.finding, picture.subtitle)
    note(ax, picture.note, below_px=34)
    return ax


def _draw_bar(ax: Axes, bar: TornadoBar, place: int, base: float) -> None:
    ends = [
        (end, text, colour)
        for end, text, colour in ((bar.low, bar.low_text, _LOWER), (bar.high, bar.high_text, _HIGHER))
        if end is not None
    ]
    # Where both lie on one side, the longer one is drawn first, so that the shorter one is seen.
    ends.sort(key=lambda end: -abs(end[0] - base))
    if ends and all(end == base for end, _, _ in ends):
        write(ax, f"{bar.low_text} to {bar.high_text}: no effect", (base, place), (5, 0), color=FAINT_INK)
        return
    right = bool(ends) and ends[0][0] >= base
    for end, text, colour in ends:
        ax.barh(place, end - base, left=base, height=0.62, color=colour, zorder=2)
        # The text of the shorter one stands on the other side, also where its bar does not.
        at = end if (end > base) == right else base
        aside, ha = (5, "left") if right else (-5, "right")
        write(ax, text, (at, place), (aside, 0), ha=ha, color=FAINT_INK if at == base else INK)
        right = not right
