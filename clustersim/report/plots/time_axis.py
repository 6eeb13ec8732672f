"""The axis of time of a step, with a break where its middle is left out."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from clustersim.report.plots.canvas import FAINT_INK
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.report.plots.time_scales import TimeScale


def draw_time_axis(ax: Axes, scale: TimeScale, label: str) -> None:
    """Label the axis with times, on both sides of the break if there is one."""
    unit, factor = ("s", 1.0) if scale.step_s >= 1 else ("ms", 1e3)
    ticks: list[tuple[float, str]] = []
    for start_s, end_s in scale.windows:
        nice = MaxNLocator(nbins=max(2, round(10 * (end_s - start_s) / (scale.width_s or 1.0))), steps=[1, 2, 5, 10])
        values = [value for value in nice.tick_values(start_s * factor, end_s * factor) if start_s <= value / factor <= end_s]
        ticks += [(scale.position(float(value) / factor), f"{value:g}") for value in values]
    ax.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    ax.set_xlabel(f"{label}, {unit}", loc="right")
    ax.spines["bottom"].set_visible(False)
    below = ax.get_ylim()[0]
    for start_s, end_s in scale.windows:
        left = scale.position(end_s) - (end_s - start_s)
        ax.plot([left, scale.position(end_s)], [below, below], color=FAINT_INK, linewidth=1.0, clip_on=False)
    if scale.is_broken:
        middle = scale.first_end_s + scale.gap_s / 2
        omitted = format_quantity(scale.last_start_s - scale.first_end_s, "s")
        ax.text(middle, sum(ax.get_ylim()) / 2, f"{omitted} left out", rotation=90, ha="center", va="center", fontsize=9, color=FAINT_INK)
