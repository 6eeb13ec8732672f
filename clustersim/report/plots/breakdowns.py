"""Breakdown of the steps of several runs: a stacked bar for each, and beside it the communication that costs nothing."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import MaxNLocator

from clustersim.measure.deciding import judged_by, standing_text, undecided
from clustersim.report import palette
from clustersim.report.plots.breakdown import Segment, segments_of, step_breakdown
from clustersim.report.plots.canvas import FAINT_INK, Margins, add_boxes, caption, key, new_axes, size_px
from clustersim.report.shares import hidden_communication, step_shares
from clustersim.report.subject import check_alike
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.report.subject import Subject

HEIGHT_PX: Final = 560

_MARGINS: Final = Margins(left=230, right=150, top=80, bottom=98)
_BAR: Final = (0.14, 0.68)
_HIDDEN_BAR: Final = (0.74, 0.86)
_LETTER_PX: Final = 7.2
_LONGEST_NAME: Final = 26


def step_breakdowns(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw a stacked bar of the step of each run on one scale of time, and hidden communication as a thin bar under it.

    One run alone is drawn with all its labels.
    """
    if len(subjects) == 1:
        return step_breakdown(subjects[0].metrics, subjects[0].timeline, ax)
    check_alike(subjects, "breakdown")
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    longest_s = max(subject.metrics.step_time_s for subject in subjects)
    ax.set_xlim(0, longest_s)
    ax.set_ylim(len(subjects), 0)
    drawn: dict[str, str] = {}
    for row, subject in enumerate(subjects):
        drawn |= _draw_row(ax, row, subject)
    unit, factor = ("s", 1.0) if longest_s >= 1 else ("ms", 1e3)
    values = [float(value) for value in MaxNLocator(nbins=10, steps=[1, 2, 5, 10]).tick_values(0, longest_s * factor) if value >= 0]
    shown = [value for value in values if value <= longest_s * factor]
    ax.set_xticks([value / factor for value in shown], [f"{value:g}" for value in shown])
    ax.set_xlabel(f"mean over ranks, {unit}", loc="right")
    middle = (_BAR[0] + _HIDDEN_BAR[1]) / 2
    ax.set_yticks([row + middle for row in range(len(subjects))], [_short(subject.label) for subject in subjects])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    caption(ax, _title(subjects), "one step of each run; the thin bar is communication that computation hides")
    key(ax, [(label, colour) for label, colour in drawn.items()], below_px=60)
    return ax


def _draw_row(ax: Axes, row: int, subject: Subject) -> dict[str, str]:
    """Draw one run and return what colours mean in it."""
    segments = segments_of(step_shares(subject.metrics), subject.timeline)
    px_per_s = size_px(ax)[0] / ax.get_xlim()[1]
    for segment in segments:
        box = np.array([[segment.start_s, segment.end_s, row + _BAR[1], row + _BAR[0]]])
        add_boxes(ax, box, segment.colour, edge_px=1.0, hatched=segment.idle)
        _write(ax, row, segment, px_per_s)
    step_s = subject.metrics.step_time_s
    hidden_s = fsum(seconds for _, seconds in hidden_communication(subject.metrics))
    add_boxes(ax, np.array([[0.0, min(hidden_s, step_s), row + _HIDDEN_BAR[1], row + _HIDDEN_BAR[0]]]), palette.HIDDEN)
    place = (step_s, row + sum(_BAR) / 2)
    ax.annotate(format_quantity(step_s, "s"), place, xytext=(6, 0), textcoords="offset points", va="center", fontsize=10, fontweight="bold")
    if hidden_s > 0.0:
        ax.annotate(
            f"{format_quantity(hidden_s, 's')} hidden",
            (min(hidden_s, step_s), row + sum(_HIDDEN_BAR) / 2),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=FAINT_INK,
        )
    named = {_meaning(segment): segment.colour for segment in segments if segment.percent > 0.0}
    return named | ({"communication, hidden": palette.HIDDEN} if hidden_s > 0.0 else {})


def _meaning(segment: Segment) -> str:
    label = "communication, exposed" if segment.colour == palette.EXPOSED else segment.label
    return f"{label} gradient" if label in {"input", "weight"} else label


def _write(ax: Axes, row: int, segment: Segment, px_per_s: float) -> None:
    name = segment.label if segment.colour == palette.EXPOSED else ""
    text = next(
        (
            text
            for text in (f"{name} {segment.percent:.0f} %".strip(), f"{segment.percent:.0f} %")
            if (len(text) + 1) * _LETTER_PX <= (segment.end_s - segment.start_s) * px_per_s
        ),
        "",
    )
    box = {"facecolor": segment.colour, "edgecolor": "none", "pad": 1.5} if segment.idle else None
    colour = palette.text_colour(segment.colour)
    ax.text(segment.middle_s, row + sum(_BAR) / 2, text, color=colour, ha="center", va="center", fontsize=9.5, bbox=box)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else f"{label[: _LONGEST_NAME - 1]}…"


def _title(subjects: Sequence[Subject]) -> str:
    """Return the shortest step, the runs within its error bars, and the longest."""
    ordered = sorted(subjects, key=lambda subject: subject.metrics.step_time_s)
    first, last = ordered[0], ordered[-1]
    ratio = last.metrics.step_time_s / first.metrics.step_time_s
    runs = [judged_by("step_time_s", each.metrics.step_time_s, each.metrics.error_bar) for each in ordered]
    near = [ordered[place].label for place in undecided(runs)]
    finding = standing_text(first.label, near) if near else f"A step of {first.label} is the shortest of {len(subjects)}"
    return f"{finding}; {last.label} takes {ratio:.3g} times as long"
