"""Days and cost of several clusters for one training, each with the interval that it is expected in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes

from clustersim.report import palette
from clustersim.report.plots.canvas import INK, Margins, caption, draw_grid, new_axes, round_locator, write
from clustersim.units.quantity import format_quantity

_ROW_PX: Final = 46
_MARGINS: Final = Margins(left=250, right=40, top=112, bottom=44)
_GAP: Final = 0.16
"""Between the panels of days and cost, as a share of the width of one."""
_ROOM: Final = 1.3
"""From the end of the longest interval to the end of its panel, for the figure beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferBar:
    """One cluster."""

    name: str
    days: float
    usd: float | None
    """None without a price."""
    least_fraction: float
    most_fraction: float


def draw_offers(finding: str, subtitle: str, bars: Sequence[OfferBar]) -> Axes:
    """Draw two bars for each cluster, the best first: days to the left and cost to the right, each from zero and with its interval."""
    height_px = _MARGINS.top + _MARGINS.bottom + _ROW_PX * len(bars)
    ax = new_axes(height_px, _MARGINS)
    width = (1.0 - _GAP) / 2
    left = ax.inset_axes((0.0, 0.0, width, 1.0))
    right = ax.inset_axes((1.0 - width, 0.0, width, 1.0))
    ax.set_axis_off()
    days = [(bar.days, f"{bar.days:,.0f} days") for bar in bars]
    usd = [(bar.usd, "no price" if bar.usd is None else format_quantity(bar.usd, "USD")) for bar in bars]
    _draw(left, "Days, failures included", bars, days, palette.FORWARD)
    _draw(right, "Cost of the whole training", bars, usd, palette.EXPOSED)
    right.xaxis.set_major_formatter(lambda value, _: format_quantity(value, "USD"))
    left.set_yticks(range(len(bars)), [bar.name for bar in bars])
    right.set_yticks([])
    caption(ax, finding, f"{subtitle}; lines: 80 % intervals", lift_points=18.0)
    return ax


def _draw(ax: Axes, title: str, bars: Sequence[OfferBar], values: Sequence[tuple[float | None, str]], colour: str) -> None:
    most = max((value * bar.most_fraction for bar, (value, _) in zip(bars, values, strict=True) if value is not None), default=1.0)
    for place, (bar, (value, text)) in enumerate(zip(bars, values, strict=True)):
        end = 0.0
        if value is not None:
            end = value * bar.most_fraction
            ax.barh(place, value, height=0.5, color=colour)
            ax.plot([value * bar.least_fraction, end], [place, place], color=INK, linewidth=1.6, marker="|", markersize=9)
        write(ax, text, (end, place), (8, 0), fontsize=10.5)
    ax.set_xlim(0, _ROOM * most)
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.xaxis.set_major_locator(round_locator(5))
    draw_grid(ax, "x", 0.7)
    ax.tick_params(axis="y", length=0, labelsize=10.5)
    write(ax, title, (0, 1), (0, 8), of="axes fraction", va="baseline", fontsize=10.5, fontweight="bold")
