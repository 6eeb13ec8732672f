"""Breakdown of the step as a stacked bar for each run, and beside it the communication that costs nothing because it is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.measure.deciding import judged_by, standing_text, undecided
from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import gpus_text, interval_text, unfit_text
from clustersim.report.plots.canvas import (
    FAINT_INK,
    Margins,
    add_boxes,
    caption,
    key,
    name_rows,
    new_axes,
    paper,
    set_times,
    size_px,
    write,
)
from clustersim.report.shares import LOSSES, Share, compute_shares, computing_percent, find_bottleneck, hidden_communication, step_shares
from clustersim.report.subject import Subject, check_alike
from clustersim.trace.timeline import Timeline
from clustersim.units.divisors import shortened
from clustersim.units.quantity import format_quantity

HEIGHT_PX: Final = 400

_MARGINS: Final = Margins(left=40, right=40, top=80, bottom=62)
_BAR: Final = (0.34, 0.78)
_HIDDEN_BAR: Final = (0.06, 0.16)
_CALLOUT: Final = 0.95
_BEND: Final = 0.92
_LETTER_PX: Final = 7.5
_CALLOUT_LETTER_PX: Final = 7.3
"""Mean widths of a letter, with some air."""
_BETWEEN_PX: Final = 14.0

_HEIGHT_OF_SEVERAL_PX: Final = 560
_MARGINS_OF_SEVERAL: Final = Margins(left=230, right=150, top=80, bottom=98)
_ROW_BAR: Final = (0.14, 0.68)
_THIN_BAR: Final = (0.74, 0.86)
_ROW_LETTER_PX: Final = 7.2
_LONGEST_NAME: Final = 26


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
    set_times(ax, step_s, "mean over ranks")
    name_rows(ax, [], [])
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
        forms = (segment.label, segment.label.replace(" ", "\n"))
        name = _fitting(forms, (segment.end_s - segment.start_s) * px_per_s, _LETTER_PX)
        if not name:
            # A label that says 0.0 % would point at nothing that can be seen.
            outside += [segment] if segment.percent > 0.0 else []
            continue
        box = paper(2.0, segment.colour) if segment.idle else None
        colour = palette.text_colour(segment.colour)
        text = f"{name}\n{segment.percent:.1f} %"
        ax.text(segment.middle_s, sum(_BAR) / 2, text, color=colour, ha="center", va="center", fontsize=10.5, linespacing=1.4, bbox=box)
    labels = [f"{segment.label} {segment.percent:.1f} %" for segment in outside]
    places = spread(
        [segment.middle_s * px_per_s for segment in outside], [len(label) * _CALLOUT_LETTER_PX for label in labels], size_px(ax)[0]
    )
    for segment, label, place in zip(outside, labels, places, strict=True):
        at_s = place / px_per_s
        ax.text(at_s, _CALLOUT, label, ha="center", va="bottom", fontsize=9.5)
        # Straight down at first, so that no line runs along the labels beside it.
        ax.plot([at_s, at_s, segment.middle_s], [_CALLOUT, _BEND, _BAR[1]], color=FAINT_INK, linewidth=0.7, clip_on=False)


def _fitting(forms: Sequence[str], room_px: float, letter_px: float) -> str:
    """Return the first form whose longest line fits; empty if none does."""
    return next((form for form in forms if max(map(len, form.split("\n"))) * letter_px + 6 <= room_px), "")


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
        write(ax, text, (at_s, sum(_HIDDEN_BAR) / 2), (6 if hidden else 0, 0))
    else:
        write(ax, text, (0, _HIDDEN_BAR[1]), (0, 2), va="bottom")


def _title(metrics: Metrics, timeline: Timeline) -> str:
    found = find_bottleneck(metrics, timeline)
    opening = f"{metrics.scenario}, {gpus_text(metrics)}: {computing_percent(metrics):.1f} % of the step computes"
    loss = f"; the largest loss is {LOSSES[found.loss]} ({found.loss_percent:.1f} %)" if found.loss else ""
    return f"{opening}{loss}{unfit_text({'': metrics.memory.fits})}"


def step_breakdowns(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw a stacked bar of the step of each run on one scale of time, and hidden communication as a thin bar under it.

    One run alone is drawn with all its labels.
    """
    if len(subjects) == 1:
        return step_breakdown(subjects[0].metrics, subjects[0].timeline, ax)
    check_alike(subjects, "breakdown")
    ax = new_axes(_HEIGHT_OF_SEVERAL_PX, _MARGINS_OF_SEVERAL) if ax is None else ax
    longest_s = max(subject.metrics.step_time_s for subject in subjects)
    ax.set_xlim(0, longest_s)
    ax.set_ylim(len(subjects), 0)
    drawn: dict[str, str] = {}
    for row, subject in enumerate(subjects):
        drawn |= _draw_row(ax, row, subject)
    set_times(ax, longest_s, "mean over ranks")
    middle = (_ROW_BAR[0] + _THIN_BAR[1]) / 2
    name_rows(ax, [row + middle for row in range(len(subjects))], [shortened(subject.label, _LONGEST_NAME) for subject in subjects])
    caption(ax, _title_of_several(subjects), "one step of each run; the thin bar is communication that computation hides")
    order = list(palette.KIND_COLOURS.values())
    key(ax, sorted(drawn.items(), key=lambda each: order.index(each[1]) if each[1] in order else len(order)), below_px=60)
    return ax


def _draw_row(ax: Axes, row: int, subject: Subject) -> dict[str, str]:
    """Draw one run and return what colours mean in it."""
    segments = segments_of(step_shares(subject.metrics), subject.timeline)
    px_per_s = size_px(ax)[0] / ax.get_xlim()[1]
    for segment in segments:
        box = np.array([[segment.start_s, segment.end_s, row + _ROW_BAR[1], row + _ROW_BAR[0]]])
        add_boxes(ax, box, segment.colour, edge_px=1.0, hatched=segment.idle)
        _write(ax, row, segment, px_per_s)
    step_s = subject.metrics.step_time_s
    hidden_s = fsum(seconds for _, seconds in hidden_communication(subject.metrics))
    add_boxes(ax, np.array([[0.0, min(hidden_s, step_s), row + _THIN_BAR[1], row + _THIN_BAR[0]]]), palette.HIDDEN)
    write(ax, format_quantity(step_s, "s"), (step_s, row + sum(_ROW_BAR) / 2), (6, 0), fontsize=10, fontweight="bold")
    if hidden_s > 0.0:
        place = min(hidden_s, step_s), row + sum(_THIN_BAR) / 2
        write(ax, f"{format_quantity(hidden_s, 's')} hidden", place, (4, 0), color=FAINT_INK)
    named = {_meaning(segment): segment.colour for segment in segments if segment.percent > 0.0}
    return named | ({"communication, hidden": palette.HIDDEN} if hidden_s > 0.0 else {})


def _meaning(segment: Segment) -> str:
    label = "communication, exposed" if segment.colour == palette.EXPOSED else segment.label
    return f"{label} gradient" if label in {"input", "weight"} else label


def _write(ax: Axes, row: int, segment: Segment, px_per_s: float) -> None:
    name = segment.label if segment.colour == palette.EXPOSED else ""
    forms = (f"{name} {segment.percent:.0f} %".strip(), f"{segment.percent:.0f} %")
    text = _fitting(forms, (segment.end_s - segment.start_s) * px_per_s, _ROW_LETTER_PX)
    box = paper(1.5, segment.colour) if segment.idle else None
    colour = palette.text_colour(segment.colour)
    ax.text(segment.middle_s, row + sum(_ROW_BAR) / 2, text, color=colour, ha="center", va="center", fontsize=9.5, bbox=box)


def _title_of_several(subjects: Sequence[Subject]) -> str:
    """Return the shortest step, the runs within its error bars, and the longest."""
    ordered = sorted(subjects, key=lambda subject: subject.metrics.step_time_s)
    first, last = ordered[0], ordered[-1]
    ratio = last.metrics.step_time_s / first.metrics.step_time_s
    runs = [judged_by("step_time_s", each.metrics.step_time_s, each.metrics.error_bar) for each in ordered]
    near = [ordered[place].label for place in undecided(runs)]
    finding = standing_text(first.label, near) if near else f"A step of {first.label} is the shortest of {len(subjects)}"
    unfit = unfit_text({each.label: each.metrics.memory.fits for each in subjects})
    return f"{finding}; {last.label} takes {ratio:.3g} times as long{unfit}"
