"""Breakdown of the step as one bar, and beside it the communication that costs nothing because it is hidden."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import MaxNLocator

from clustersim.report import palette
from clustersim.report.bottleneck import LOSSES, find_bottleneck
from clustersim.report.facts import gpus_text, interval_text
from clustersim.report.plots.canvas import FAINT_INK, Margins, add_boxes, caption, new_axes, size_px
from clustersim.report.shares import Share, compute_shares, computing_percent, hidden_communication, step_shares
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.measure.metrics import Metrics
    from clustersim.trace.timeline import Timeline

HEIGHT_PX: Final = 400

_MARGINS: Final = Margins(left=40, right=40, top=80, bottom=62)
_BAR: Final = (0.34, 0.78)
_HIDDEN_BAR: Final = (0.06, 0.16)
_CALLOUT: Final = 0.93
_LETTER_PX: Final = 7.5
_CALLOUT_LETTER_PX: Final = 6.9
"""Mean widths of a letter, with some air."""
_BETWEEN_PX: Final = 14.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of the bar."""

    label: str
    colour: str
    idle: bool
    start_s: float
    end_s: float
    percent: float

    @property
    def middle_s(self) -> float:
        """Position of its label, in seconds."""
        return (self.start_s + self.end_s) / 2


def step_breakdown(metrics: Metrics, timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw the parts of the step as one stacked bar with direct labels, and hidden communication as a thin bar below it."""
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    segments = segments_of(step_shares(metrics), timeline)
    step_s = segments[-1].end_s if segments else 1.0
    ax.set_xlim(0, step_s)
    ax.set_ylim(0, 1)
    _draw_bar(ax, segments)
    _draw_hidden(ax, metrics, step_s)
    unit, factor = ("s", 1.0) if step_s >= 1 else ("ms", 1e3)
    ticks = [
        float(value)
        for value in MaxNLocator(nbins=10, steps=[1, 2, 5, 10]).tick_values(0, step_s * factor)
        if 0 <= value <= step_s * factor
    ]
    ax.set_xticks([value / factor for value in ticks], [f"{value:g}" for value in ticks])
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(f"mean over ranks, {unit}", loc="right")
    caption(ax, _title(metrics, timeline), f"one step of {_duration_text(metrics)}; what runs beside computation stands below the bar")
    return ax


def _duration_text(metrics: Metrics) -> str:
    level = metrics.step_time_interval_level_fraction
    interval = "" if level is None else f" ({100 * level:.0f} % interval {interval_text(metrics)})"
    return f"{format_quantity(metrics.step_time_s, 's')}{interval}"


def segments_of(shares: Sequence[Share], timeline: Timeline) -> list[Segment]:
    """Return the stretches of the bar in order; computation is divided into forward, backward and recomputation.

    Percentages are those of the text report, and those of the divided computation sum to its own.
    """
    segments: list[Segment] = []
    at_s = 0.0
    for share in shares:
        pieces = compute_shares(share, timeline) if share.key == "compute" else ()
        for piece in pieces or (share,):
            colour = palette.KIND_COLOURS.get(piece.key, share.colour)
            segments.append(Segment(piece.label, colour, share.is_idle, at_s, at_s + piece.seconds, piece.percent))
            at_s += piece.seconds
    return segments


def _draw_bar(ax: Axes, segments: Sequence[Segment]) -> None:
    px_per_s = size_px(ax)[0] / (segments[-1].end_s if segments else 1.0)
    outside: list[Segment] = []
    for segment in segments:
        add_boxes(ax, np.array([[segment.start_s, segment.end_s, *_BAR]]), segment.colour, edge_px=1.5, hatched=segment.idle)
        name = _fitting(segment.label, (segment.end_s - segment.start_s) * px_per_s)
        if not name:
            # A label that says 0.0 % would point at nothing that can be seen.
            outside += [segment] if segment.percent > 0.0 else []
            continue
        box = {"facecolor": segment.colour, "edgecolor": "none", "pad": 2.0} if segment.idle else None
        colour = palette.text_colour(segment.colour)
        text = f"{name}\n{segment.percent:.1f} %"
        ax.text(segment.middle_s, sum(_BAR) / 2, text, color=colour, ha="center", va="center", fontsize=10.5, linespacing=1.4, bbox=box)
    labels = [f"{segment.label} {segment.percent:.1f} %" for segment in outside]
    places = spread(
        [segment.middle_s * px_per_s for segment in outside], [len(label) * _CALLOUT_LETTER_PX for label in labels], size_px(ax)[0]
    )
    for segment, label, place in zip(outside, labels, places, strict=True):
        ax.annotate(
            label,
            (segment.middle_s, _BAR[1]),
            xytext=(place / px_per_s, _CALLOUT),
            textcoords="data",
            ha="center",
            va="bottom",
            fontsize=9.5,
            arrowprops={"arrowstyle": "-", "color": FAINT_INK, "linewidth": 0.7, "shrinkA": 0.0, "shrinkB": 0.0},
        )


def _fitting(label: str, room_px: float) -> str:
    """Return the label on one line or with a line for each word, whichever fits; empty if neither does."""
    forms = (label, label.replace(" ", "\n"))
    return next((form for form in forms if max(map(len, form.split("\n"))) * _LETTER_PX + 6 <= room_px), "")


def spread(wanted_px: Sequence[float], widths_px: Sequence[float], room_px: float, *, between_px: float = _BETWEEN_PX) -> list[float]:
    """Return centres for labels in a row, near those wanted, without overlap and within the room as far as it suffices."""
    places: list[float] = []
    left_px = 0.0
    for wanted, width in zip(wanted_px, widths_px, strict=True):
        places.append(max(wanted, left_px + width / 2))
        left_px = places[-1] + width / 2 + between_px
    right_px = room_px
    for index in reversed(range(len(places))):
        places[index] = min(places[index], right_px - widths_px[index] / 2)
        right_px = places[index] - widths_px[index] / 2 - between_px
    return places


def _draw_hidden(ax: Axes, metrics: Metrics, step_s: float) -> None:
    at_s = 0.0
    hidden = hidden_communication(metrics)
    for _, seconds in hidden:
        add_boxes(ax, np.array([[at_s, min(at_s + seconds, step_s), *_HIDDEN_BAR]]), palette.HIDDEN, edge_px=1.0)
        at_s = min(at_s + seconds, step_s)
    listed = ", ".join(f"{dimension.upper()} {format_quantity(seconds, 's')}" for dimension, seconds in hidden)
    text = f"communication overlapped with computation: {listed}" if hidden else "no communication is overlapped with computation"
    if at_s < 0.5 * step_s:
        ax.annotate(
            text, (at_s, sum(_HIDDEN_BAR) / 2), xytext=(6 if hidden else 0, 0), textcoords="offset points", va="center", fontsize=9.5
        )
    else:
        ax.annotate(text, (0, _HIDDEN_BAR[1]), xytext=(0, 2), textcoords="offset points", va="bottom", fontsize=9.5)


def _title(metrics: Metrics, timeline: Timeline) -> str:
    found = find_bottleneck(metrics, timeline)
    opening = f"{metrics.scenario}, {gpus_text(metrics)}: {computing_percent(metrics):.1f} % of the step computes"
    if not found.loss:
        return opening
    return f"{opening}; the largest loss is {LOSSES[found.loss]} ({found.loss_percent:.1f} %)"
