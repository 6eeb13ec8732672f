"""Utilisation of each tier of links over the step."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.measure.utilisation import used_links, utilisation_over_time
from clustersim.report.facts import TIER_LABELS, gpus_text, percent_text
from clustersim.report.plots.canvas import FAINT_INK, SCALE, FloatArray, Margins, caption, draw_scale, draw_time_axis, new_axes
from clustersim.report.plots.time_scales import drawn_part, excerpt_of, whole_step
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.report.subject import Subject

ROW_PX: Final = 66
N_STRETCHES: Final = 240

_MARGINS: Final = Margins(left=160, right=250, top=80, bottom=104)


def link_utilisation(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw a row for each tier of links that is used, coloured by its mean utilisation in short stretches of the step."""
    subject = subjects[0]
    metrics = subject.metrics
    excerpt, timeline = excerpt_of(subject.timeline), drawn_part(subject.timeline)
    end_s = timeline.step_time_s or 1.0
    edges_s = np.linspace(0.0, end_s, N_STRETCHES + 1)
    rows = utilisation_over_time(subject.timeline, edges_s + (0.0 if excerpt is None else excerpt.start_s))
    ax = new_axes(_MARGINS.top + _MARGINS.bottom + ROW_PX * max(len(rows), 1), _MARGINS) if ax is None else ax
    highest = max([0.0, *(float(row.max()) for row in rows.values())]) or 1.0
    ax.set_xlim(0, end_s)
    ax.set_ylim(max(len(rows), 1), 0)
    if rows:
        ax.pcolormesh(edges_s, np.arange(len(rows) + 1), np.stack(list(rows.values())), cmap=SCALE, vmin=0.0, vmax=highest)
    else:
        ax.text(0.5, 0.5, "no link carries anything", transform=ax.transAxes, ha="center", va="center", fontsize=12, color=FAINT_INK)
    means = {tier.tier: tier for tier in metrics.links}
    ax.set_yticks([place + 0.5 for place in range(len(rows))], [TIER_LABELS.get(tier, tier) for tier in rows])
    ax.tick_params(axis="y", length=0, labelsize=10)
    ax.spines["left"].set_visible(False)
    for place, (tier, links) in enumerate(used_links(subject.timeline).items()):
        peak = means[tier].peak_utilisation if tier in means else max(link.peak_utilisation for link in links)
        carried = format_quantity(sum(link.bytes * link.n_links for link in links), "B")
        ax.annotate(
            f"highest moment {percent_text(peak)}\n{carried} in a step",
            (1, place + 0.5),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=FAINT_INK,
        )
        if place:
            ax.axhline(place, color="white", linewidth=2.5)
    draw_time_axis(ax, whole_step(timeline), "time in the step" if subject.timeline.steps is None else "time")
    draw_scale(ax, highest, "utilisation of the links in use", below_px=62)
    stretch = format_quantity(end_s / N_STRETCHES, "s")
    which = "" if excerpt is None else f"{excerpt.text}; "
    subtitle = (
        f"{which}mean over the links in use, in stretches of {stretch}; what an operation carries is spread evenly over the time it takes"
    )
    caption(ax, f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(rows)}", subtitle)
    return ax


def _finding(rows: dict[str, FloatArray]) -> str:
    if not rows:
        return "no link is used"
    means = {tier: float(row.mean()) for tier, row in rows.items()}
    busiest = max(means, key=lambda tier: means[tier])
    return f"{TIER_LABELS.get(busiest, busiest)} links are busiest, {percent_text(means[busiest])} in the mean"
