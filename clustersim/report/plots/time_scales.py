"""Layout of the pipeline picture: the part of the step that is drawn, and the communication that is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from clustersim.measure.exposure import FloatArray
from clustersim.report.plots.canvas import FAINT_INK, add_boxes, round_locator, time_unit
from clustersim.trace.timeline import PASS_KINDS, Span, Timeline
from clustersim.units.quantity import format_quantity

IntArray = NDArray[np.int64]

NARROW_CELL_PX: Final = 12.0
"""Passes narrower than this have no room for the number of a micro-batch; the middle of the step is left out if that helps."""

SMALLEST_CELL_PX: Final = 6.0
"""Narrower passes are indistinguishable, also beside a break."""

READABLE_CELL_PX: Final = 20.0
"""Width of a pass beside a break, if filling and draining the pipeline leave room for it."""

BREAK_PX: Final = 26.0

STEPS_DRAWN: Final = 3
"""Steps of a longer run that a picture shows: enough to see ranks drift apart, few enough to tell passes apart."""

_TOUCHING_S: Final = 1e-9

_APART: Final = 2.0
"""Distance between two marks that an eye tells apart, over the narrowest mark."""

_LEAST_OMITTED_FRACTION: Final = 0.15
"""Leaving out less than this is not worth the break."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The drawn part of the step: all of it, or its beginning and its end with a break between them."""

    step_s: float
    first_end_s: float
    last_start_s: float
    gap_s: float
    """Width of the break, in seconds of the axis."""

    @property
    def is_broken(self) -> bool:
        """True where the middle of the step is left out."""
        return self.last_start_s > self.first_end_s

    @property
    def width_s(self) -> float:
        """Length of the axis."""
        return self.position(self.step_s)

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each drawn part, in time of the step."""
        if not self.is_broken:
            return ((0.0, self.step_s),)
        return ((0.0, self.first_end_s), (self.last_start_s, self.step_s))

    def position(self, time_s: float) -> float:
        """Return where on the axis an instant of a drawn part is."""
        return time_s if not self.is_broken or time_s <= self.first_end_s else time_s - self.last_start_s + self.first_end_s + self.gap_s

    def clipped(self, start_s: FloatArray, end_s: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return left and right edge on the axis of every stretch that is drawn, and which one it is.

        A stretch that reaches over the break appears on both sides of it.
        """
        lefts: list[FloatArray] = []
        rights: list[FloatArray] = []
        which: list[IntArray] = []
        for from_s, to_s in self.windows:
            inside = np.flatnonzero((end_s > from_s) & (start_s < to_s))
            shift_s = self.position(to_s) - to_s
            lefts.append(np.maximum(start_s[inside], from_s) + shift_s)
            rights.append(np.minimum(end_s[inside], to_s) + shift_s)
            which.append(inside)
        return np.concatenate(lefts), np.concatenate(rights), np.concatenate(which)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The drawn steps of a run of several, from its middle: by then ranks at their own pace have drifted apart."""

    first: int
    """Counted from 1."""
    last: int
    n_steps: int
    start_s: float
    end_s: float

    @property
    def text(self) -> str:
        """Which steps are drawn, such as ``steps 24 to 26 of 50, from 1.2 s on``."""
        start = f", from {format_quantity(self.start_s, 's')} on" if self.first > 1 else ""
        return f"steps {self.first} to {self.last} of {self.n_steps}{start}"


def excerpt_of(timeline: Timeline) -> Excerpt | None:
    """Return which of several steps are drawn; None of one."""
    if timeline.steps is None:
        return None
    times_s = timeline.steps.step_times_s
    first = max(0, (len(times_s) - STEPS_DRAWN) // 2)
    drawn_s = times_s[first : first + STEPS_DRAWN]
    start_s = fsum(times_s[:first])
    return Excerpt(first + 1, first + len(drawn_s), len(times_s), start_s, min(start_s + fsum(drawn_s), timeline.duration_s))


def drawn_part(timeline: Timeline) -> Timeline:
    """Return what there is to draw of several steps, as one stretch of time that begins at 0; one step as it is."""
    part = excerpt_of(timeline)
    if part is None:
        return timeline
    length_s = part.end_s - part.start_s
    spans = tuple(
        replace(span, start_s=max(span.start_s - part.start_s, 0.0), end_s=min(span.end_s - part.start_s, length_s))
        for span in timeline.spans
        if span.start_s < part.end_s and (span.end_s > part.start_s or span.start_s >= part.start_s)
    )
    return replace(timeline, spans=spans, step_time_s=length_s, steps=None)


def marks(left: FloatArray, right: FloatArray, least: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return left and right edge of marks of stretches, none narrower than ``least``, and the share of its height that each has.

    Marks too close to be told apart are one, as high as the share of its width that is covered, so that areas are to scale.

    Examples
    --------
    >>> marks(np.array([0.0, 1.0, 9.0]), np.array([0.5, 2.0, 9.1]), 1.0)
    (array([0., 9.]), array([ 2., 10.]), array([0.75, 1.  ]))
    """
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    if not left.size:
        return left, right, left
    until = np.maximum.accumulate(np.maximum(right, left + least))
    begins = np.concatenate([[0], 1 + np.flatnonzero(left[1:] - until[:-1] > _APART * least)])
    ends = np.append(begins[1:], left.size) - 1
    width = until[ends] - left[begins]
    covered = np.maximum(np.add.reduceat(right - left, begins), least)
    return left[begins], until[ends], np.minimum(covered / width, 1.0)


Stretch = tuple[float, float, float, float]
"""Start and end in seconds, upper and lower edge on the axes."""


@dataclass(frozen=True, slots=True)
class TimeAxes:
    """Axes with a scale of time, on which stretches are boxes."""

    ax: Axes
    scale: TimeScale
    px_per_s: float

    def boxes(self, stretches: Sequence[Stretch]) -> tuple[FloatArray, IntArray]:
        """Return the drawn parts of stretches as boxes on the axes, and which stretch each belongs to."""
        table = np.array(stretches, dtype=np.float64).reshape(-1, 4)
        left, right, which = self.scale.clipped(table[:, 0], table[:, 1])
        return np.stack([left, right, table[which, 3], table[which, 2]], axis=1), which

    def draw(self, stretches: Sequence[Stretch], colour: str, *, least_px: float = 0.0) -> None:
        """Draw stretches in one colour, without edges, none narrower than some pixels."""
        boxes, _ = self.boxes(stretches)
        boxes[:, 1] = np.maximum(boxes[:, 1], boxes[:, 0] + least_px / self.px_per_s)
        add_boxes(self.ax, boxes, colour)

    def mark(self, stretches: Sequence[Stretch], colour: str, least_px: float = 1.0) -> None:
        """Draw the stretches of one lane, those too short to be told apart as high as their share of the time."""
        boxes, _ = self.boxes(stretches)
        if len(boxes):
            left, right, share = marks(boxes[:, 0], boxes[:, 1], least_px / self.px_per_s)
            lower, upper = boxes[0, 2], boxes[0, 3]
            add_boxes(self.ax, np.stack([left, right, np.full_like(left, lower), lower + share * (upper - lower)], axis=1), colour)


def whole_step(timeline: Timeline) -> TimeScale:
    """Return the scale that leaves nothing out."""
    step_s = timeline.step_time_s
    return TimeScale(step_s, step_s, step_s, 0.0)


def passes_of(timeline: Timeline) -> list[Span]:
    """Return the forward and backward passes, as whole cells."""
    return joined([span for span in timeline.spans if span.kind in PASS_KINDS and span.end_s > span.start_s])


def short_pass_s(timeline: Timeline) -> float:
    """Return the duration below which one pass in ten lies; 0 without passes."""
    durations = [span.end_s - span.start_s for span in passes_of(timeline)]
    return float(np.quantile(np.array(durations), 0.1)) if durations else 0.0


def time_scale(timeline: Timeline, width_px: float) -> TimeScale:
    """Return a scale on which single passes are visible, if necessary without the middle of the step.

    Filling and draining the pipeline are never left out: they are what the picture is for. Where they alone are so long that
    passes stay narrow, the whole step is drawn.
    """
    step_s = timeline.step_time_s
    whole = whole_step(timeline)
    short_s = short_pass_s(timeline)
    if short_s <= 0.0 or short_s / step_s * width_px >= NARROW_CELL_PX:
        return whole
    filled_s, drained_s = _fill_and_drain(passes_of(timeline))
    room_px = width_px - BREAK_PX
    half_s = short_s / READABLE_CELL_PX * room_px / 2
    first_s, last_s = max(half_s, filled_s + 2 * short_s), max(half_s, step_s - drained_s + 2 * short_s)
    shown_s = first_s + last_s
    if shown_s > (1 - _LEAST_OMITTED_FRACTION) * step_s or short_s / shown_s * room_px < SMALLEST_CELL_PX:
        return whole
    return TimeScale(step_s, first_s, step_s - last_s, shown_s * BREAK_PX / room_px)


def _fill_and_drain(passes: Sequence[Span]) -> tuple[float, float]:
    """Return when the last rank class begins its first pass, and when the first one has ended its last pass."""
    begins_s: dict[int, float] = {}
    ends_s: dict[int, float] = {}
    for span in passes:
        begins_s[span.rank_class] = min(span.start_s, begins_s.get(span.rank_class, span.start_s))
        ends_s[span.rank_class] = max(span.end_s, ends_s.get(span.rank_class, span.end_s))
    return max(begins_s.values()), min(ends_s.values())


def joined(passes: Sequence[Span]) -> list[Span]:
    """Return the spans with pieces of one pass put together: the same work on the same micro-batch, one right after the other.

    Lowering cuts a backward pass where a bucket of gradients is ready; a reader looks for one cell.
    """
    whole: dict[tuple[int, str, str, int, int], list[Span]] = {}
    for span in sorted(passes, key=lambda span: span.start_s):
        same = whole.setdefault((span.rank_class, span.stream, span.kind, span.micro_batch, span.chunk), [])
        if same and span.micro_batch >= 0 and abs(span.start_s - same[-1].end_s) <= _TOUCHING_S:
            same[-1] = replace(
                same[-1],
                end_s=span.end_s,
                compute_s=same[-1].compute_s + span.compute_s,
                recompute_s=same[-1].recompute_s + span.recompute_s,
                hidden_s=same[-1].hidden_s + span.hidden_s,
                exposed_s=same[-1].exposed_s + span.exposed_s,
            )
        else:
            same.append(span)
    return [span for spans in whole.values() for span in spans]


def draw_time_axis(ax: Axes, scale: TimeScale, label: str) -> None:
    """Label the axis with times, on both sides of the break if there is one."""
    unit, factor = time_unit(scale.step_s)
    ticks: list[tuple[float, str]] = []
    for start_s, end_s in scale.windows:
        nice = round_locator(max(2, round(10 * (end_s - start_s) / (scale.width_s or 1.0))))
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
        ax.text(middle, sum(ax.get_ylim()) / 2, f"{omitted} left out", rotation=90, ha="center", va="center", fontsize=9.5, color=FAINT_INK)
