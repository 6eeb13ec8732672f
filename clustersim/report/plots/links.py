"""Utilisation of each tier of links over the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.measure.utilisation import mean_utilisation, used_links, utilisation_over_time
from clustersim.report.facts import TIER_LABELS, gpus_text, percent_text
from clustersim.report.plots.canvas import SCALE, Margins, beside, caption, draw_scale, name_rows, new_axes, round_share, say_empty
from clustersim.report.plots.time_scales import draw_time_axis, drawn_part, excerpt_of, whole_step
from clustersim.report.subject import Subject
from clustersim.units.quantity import format_quantity

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
    darkest = round_share(max([0.0, *(float(row.max()) for row in rows.values())]))
    used = used_links(subject.timeline)
    means = {tier: mean_utilisation(links, metrics.step_time_s) for tier, links in used.items()}
    ax.set_xlim(0, end_s)
    ax.set_ylim(max(len(rows), 1), 0)
    if rows:
        ax.pcolormesh(edges_s, np.arange(len(rows) + 1), np.stack(list(rows.values())), cmap=SCALE, vmin=0.0, vmax=darkest)
    else:
        say_empty(ax, "no link carries anything")
    name_rows(ax, [place + 0.5 for place in range(len(rows))], [TIER_LABELS.get(tier, tier) for tier in rows])
    for place, (tier, links) in enumerate(used.items()):
        peak = max(link.peak_utilisation for link in links)
        carried = format_quantity(sum(link.bytes * link.n_links for link in links), "B")
        beside(ax, place + 0.5, f"{percent_text(means[tier])} mean, {percent_text(peak)} at most\n{carried} in a step")
        if place:
            ax.axhline(place, color="white", linewidth=2.5)
    draw_time_axis(ax, whole_step(timeline), "time in the step" if subject.timeline.steps is None else "time")
    stretch = format_quantity(end_s / N_STRETCHES, "s")
    draw_scale(ax, darkest, f"utilisation of the links in use, mean over them and over each stretch of {stretch}", below_px=62)
    which = "" if excerpt is None else f"{excerpt.text}; "
    whole = "the step" if excerpt is None else "all steps"
    subtitle = (
        f"{which}at the right, mean over {whole}, and the highest moment of a link; bytes of an operation are spread evenly over its time"
    )
    caption(ax, f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(means)}", subtitle)
    return ax


def _finding(means: dict[str, float]) -> str:
    if not means:
        return "no link is used"
    busiest = max(means, key=lambda tier: means[tier])
    return f"{TIER_LABELS[busiest]} is busiest, {percent_text(means[busiest])} mean"
