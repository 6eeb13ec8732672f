"""Activity of single ranks over the step: a lane for computation and one for each kind of communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from matplotlib.axes import Axes

from clustersim.measure.exposure import busy_intervals, split_by
from clustersim.measure.metrics import Metrics, by_dimension
from clustersim.measure.step_breakdown import times_by_class
from clustersim.report import palette
from clustersim.report.facts import gpus_text, percent_text
from clustersim.report.plots.canvas import (
    FloatArray,
    Margins,
    add_boxes,
    beside,
    caption,
    key,
    name_rows,
    new_axes,
    size_px,
    spaced,
    write,
)
from clustersim.report.plots.time_scales import (
    Excerpt,
    Stretch,
    TimeAxes,
    TimeScale,
    draw_time_axis,
    drawn_part,
    excerpt_of,
    joined,
    passes_of,
    time_scale,
)
from clustersim.report.subject import Subject
from clustersim.trace.columns import columns_of
from clustersim.trace.timeline import DIMENSIONS, Span, Timeline
from clustersim.units.divisors import shortened
from clustersim.units.quantity import format_quantity

LANE_PX: Final = 28
MOST_RANKS: Final = 4
"""Rank classes that are shown; of more, some from the first to the last, and the one with the longest pass."""

_MARGINS: Final = Margins(left=190, right=140, top=74, bottom=84)
_LEAST_PX: Final = 1.0
_LANE: Final = (0.12, 0.96)
"""Upper and lower edge of what is drawn in a lane of communication."""
_COMPUTE: Final = (0.04, 0.96)
"""The same in a lane of computation."""
_LEAST_SHARE: Final = 0.04
"""Lowest share of a lane that is drawn."""
_ALIKE: Final = 1.05
"""Longest pass over that of others, up to which ranks are alike."""
_BETWEEN: Final = 0.45
"""Between two ranks, in lanes."""
_KINDS: Final = ("forward", "backward", "input", "weight", "recompute", "optimizer", "host", "load")


@dataclass(frozen=True, slots=True)
class _Lanes(TimeAxes):
    """Axes, scale, and where each lane begins, in lanes from the top."""

    tops: dict[tuple[int, str], float]

    def inside(self, lane: tuple[int, str], times_s: Sequence[tuple[float, float]], edges: tuple[float, float] = _LANE) -> list[Stretch]:
        """Return stretches of time between two edges of a lane."""
        return [(start_s, end_s, self.tops[lane] + edges[0], self.tops[lane] + edges[1]) for start_s, end_s in times_s]


def rank_timeline(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw for some ranks a lane of computation and a lane of communication for each dimension, and what of it is exposed.

    Communication inside a pass is drawn as high as its share of the pass. Where passes would be too narrow to tell apart, the middle of
    the step is left out.
    """
    subject = subjects[0]
    excerpt, timeline = excerpt_of(subject.timeline), drawn_part(subject.timeline)
    classes = _shown(timeline)
    spans = {index: [span for span in timeline.spans if span.rank_class == index] for index in classes}
    dimensions = _dimensions(timeline.spans)
    tops = {
        (index, name): row * (len(dimensions) + 1 + _BETWEEN) + place
        for row, index in enumerate(classes)
        for place, name in enumerate(("compute", *dimensions))
    }
    n_lanes = max(tops.values()) + 1
    ax = new_axes(round(LANE_PX * max(n_lanes, 4)) + _MARGINS.top + _MARGINS.bottom, _MARGINS) if ax is None else ax
    scale = time_scale(timeline, size_px(ax)[0])
    ax.set_xlim(0, scale.width_s or 1.0)
    ax.set_ylim(n_lanes, 0)
    lanes = _Lanes(ax, scale, size_px(ax)[0] / (scale.width_s or 1.0), tops)
    drawn: dict[str, None] = {}
    for index in classes:
        drawn |= dict.fromkeys(_draw_rank(lanes, index, spans[index], timeline.step_time_s))
    draw_time_axis(ax, scale, "time in the step" if excerpt is None else "time")
    _name_lanes(ax, timeline, tops)
    _write_shares(ax, subject, tops)
    caption(ax, _title(subject.metrics), _subtitle((excerpt, scale), (len(classes), len(timeline.rank_classes)), subject.metrics))
    key(ax, _entries(drawn), below_px=48)
    return ax


def _shown(timeline: Timeline) -> list[int]:
    n_classes = len(timeline.rank_classes)
    if n_classes <= MOST_RANKS:
        return list(range(n_classes))
    even = spaced(n_classes, MOST_RANKS, 0)
    longest_s = [0.0] * n_classes
    for span in passes_of(timeline):
        longest_s[span.rank_class] = max(longest_s[span.rank_class], span.end_s - span.start_s)
    slowest = max(range(n_classes), key=lambda index: longest_s[index])
    if longest_s[slowest] <= _ALIKE * max(longest_s[index] for index in even):
        return even
    return spaced(n_classes, MOST_RANKS, slowest)


def _dimensions(spans: Sequence[Span]) -> tuple[str, ...]:
    """Return the dimensions that communicate, in their order."""
    found = {span.dimension for span in spans}
    found |= {dimension for span in spans for pairs in (span.exposed_s, span.hidden_s) for dimension, seconds in pairs if seconds > 0.0}
    return tuple(dimension for dimension in DIMENSIONS if dimension in found)


def _draw_rank(lanes: _Lanes, index: int, spans: Sequence[Span], end_s: float) -> list[str]:
    lanes_of_rank = [lane for lane in lanes.tops if lane[0] == index]
    add_boxes(lanes.ax, lanes.boxes(lanes.inside((index, "compute"), [(0.0, end_s)], _COMPUTE))[0], palette.IDLE, hatched=True)
    cells = joined([span for span in spans if span.kind != "communication"])
    kinds: list[str] = ["idle"]
    for kind in _KINDS:
        stretches = [(span.start_s, span.end_s) for span in cells if span.kind == kind]
        if stretches:
            lanes.draw(lanes.inside((index, "compute"), stretches, _COMPUTE), palette.KIND_COLOURS[kind], least_px=_LEAST_PX)
            kinds.append(kind)
    recomputed = [(span.start_s, span.start_s + span.recompute_s) for span in cells if span.recompute_s > 0 and span.kind != "recompute"]
    if recomputed:
        lanes.draw(lanes.inside((index, "compute"), recomputed, _COMPUTE), palette.RECOMPUTE, least_px=_LEAST_PX)
        kinds.append("recompute")
    busy = busy_intervals(cells)
    for _, dimension in lanes_of_rank[1:]:
        kinds += _draw_dimension(lanes, (index, dimension), spans, cells, busy)
    return kinds


def _draw_dimension(lanes: _Lanes, lane: tuple[int, str], spans: Sequence[Span], cells: Sequence[Span], busy: FloatArray) -> list[str]:
    """Draw the communication of a rank along one dimension: overlapped, and inside passes."""
    colour = palette.DIMENSION_COLOURS[lane[1]]
    beside = [span for span in spans if span.kind == "communication" and span.dimension == lane[1]]
    merged = [(start_s, end_s) for start_s, end_s in busy_intervals(beside).tolist()]
    lanes.mark(lanes.inside(lane, merged), colour)
    exposed = [piece for span in beside for piece in split_by(span, busy)[1]]
    lanes.mark(lanes.inside(lane, exposed), palette.EXPOSED)
    inside: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for span in cells:
        hidden_s, exposed_s = (fsum(each for name, each in pairs if name == lane[1]) for pairs in (span.hidden_s, span.exposed_s))
        for drawn, seconds in ((colour, hidden_s + exposed_s), (palette.EXPOSED, exposed_s)):
            if seconds > 0.0 and span.end_s > span.start_s:
                share = min(1.0, max(round(seconds / (span.end_s - span.start_s), 2), _LEAST_SHARE))
                inside.setdefault((drawn, share), []).append((span.start_s, span.end_s))
    for (drawn, share), stretches in sorted(inside.items(), key=lambda item: item[0][0] == palette.EXPOSED):
        upper = _LANE[1] - share * (_LANE[1] - _LANE[0])
        lanes.draw(lanes.inside(lane, stretches, (upper, _LANE[1])), drawn, least_px=_LEAST_PX)
    return [lane[1]] + (["exposed"] if exposed or any(drawn == palette.EXPOSED for drawn, _ in inside) else [])


def _name_lanes(ax: Axes, timeline: Timeline, tops: dict[tuple[int, str], float]) -> None:
    name_rows(ax, [top + 0.5 for top in tops.values()], [name if name == "compute" else name.upper() for _, name in tops])
    ax.tick_params(axis="y", labelsize=9.5)
    for (index, name), top in tops.items():
        if name == "compute":
            write(ax, shortened(timeline.rank_classes[index].name, 16), (0, top + 0.5), (-62, 0), of=("axes fraction", "data"), ha="right")


def _write_shares(ax: Axes, subject: Subject, tops: dict[tuple[int, str], float]) -> None:
    """Write beside each lane of communication the share of the whole time in which it is exposed, whatever part of it is drawn."""
    timeline = subject.timeline
    n_classes, duration_s = len(timeline.rank_classes), timeline.duration_s
    times = times_by_class(columns_of(timeline.spans), n_classes, duration_s, sends_block=subject.sends_block)
    for (index, name), top in tops.items():
        if name != "compute" and duration_s > 0.0:
            beside(ax, top + 0.5, f"exposed {percent_text(times[index].exposed.get(name, 0.0) / duration_s)}")


def _entries(drawn: dict[str, None]) -> list[tuple[str, str]]:
    names = {"idle": "idle", "exposed": "exposed: waited for"}
    entries = [(name, palette.KIND_COLOURS[name]) for name in _KINDS if name in drawn]
    entries += [(name.upper(), palette.DIMENSION_COLOURS[name]) for name in DIMENSIONS if name in drawn]
    return entries + [(names[name], palette.KIND_COLOURS[name]) for name in ("exposed", "idle") if name in drawn]


def _title(metrics: Metrics) -> str:
    exposed_s = fsum(by_dimension(metrics.breakdown_s.exposed_communication).values())
    hidden_s = fsum(by_dimension(metrics.overlapped_communication_s).values())
    whole = f"{metrics.scenario}, {gpus_text(metrics)}"
    if exposed_s + hidden_s <= 0.0:
        return f"{whole}: no rank communicates"
    hidden, waits = percent_text(hidden_s / (exposed_s + hidden_s)), percent_text(exposed_s / metrics.step_time_s)
    return f"{whole}: {hidden} of communication is hidden, {waits} of the step waits for it"


def _subtitle(drawn: tuple[Excerpt | None, TimeScale], classes: tuple[int, int], metrics: Metrics) -> str:
    (excerpt, scale), (n_shown, n_classes) = drawn, classes
    parts = [f"one rank of each class, a step of {format_quantity(metrics.step_time_s, 's')}"]
    if excerpt is not None:
        parts.append(excerpt.text)
    if n_shown < n_classes:
        parts.append(f"{n_shown} of {n_classes} classes")
    if scale.is_broken:
        parts.append("its middle is left out")
    parts.append(
        "communication inside a pass, or too short to be told apart, is as high as its share; at the right, shares of the whole time"
    )
    return "; ".join(parts)
