"""The pipeline of one step: what every rank class does, when, and what communication runs beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.measure.exposure import busy_intervals, split_by
from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import gpus_text, percent_text, unfit_text
from clustersim.report.plots.canvas import FloatArray, Margins, add_boxes, beside, caption, key, name_rows, new_axes, size_px
from clustersim.report.plots.time_scales import (
    Excerpt,
    Stretch,
    TimeAxes,
    draw_time_axis,
    drawn_part,
    excerpt_of,
    joined,
    short_pass_s,
    time_scale,
    whole_step,
)
from clustersim.report.shares import computing_percent
from clustersim.trace.timeline import DIMENSIONS, Span, Timeline
from clustersim.units.divisors import shortened
from clustersim.units.quantity import format_quantity

ROW_PX: Final = 66
LANE_PX: Final = 12.5
"""Height of a lane that has its name beside it."""
SMALLEST_ROW_PX: Final = 15
TALLEST_PX: Final = 960
N_LABELS_SHOWN: Final = 32
LARGEST_LETTERS: Final = 3000
"""Letters in one picture; more would take longer to draw than all cells."""

_MARGINS: Final = Margins(left=118, right=40, top=74, bottom=84)
_NAME_PX: Final = 18.0
_LETTER_PX: Final = 8.0
"""Room beside the name of a row, and of a letter of it on average."""
_LONGEST_NAME: Final = 48
"""Letters of a name; of a longer one the rest is left out."""
_CELL_TOP: Final = 0.06
_CELL_BOTTOM: Final = 0.66
_LANES_TOP: Final = 0.70
_LANES_BOTTOM: Final = 0.97
_LETTER_PX_PER_POINT: Final = 0.88
_SMALL_LETTER_POINTS: Final = 9.5
_LARGE_LETTER_POINTS: Final = 10.0
_ROOMY_CELL_PX: Final = 40.0
_LEAST_LETTER_ROW_PX: Final = 11.0
_LEAST_BREAK_ROW_PX: Final = 20.0
_LEAST_LANE_PX: Final = 1.0
_LIGHTER_AT_MOST: Final = 0.4
_PASSES: Final = ("forward", "backward", "input", "weight")
_CLOSE: Final = 0.005
"""Share of the step below which a difference of bubbles, or a cause of it, is not told."""

_KIND_LABELS: Final = {
    "forward": "F forward",
    "backward": "B backward",
    "input": "I input gradient",
    "weight": "W weight gradient",
    "recompute": "recomputation",
    "optimizer": "O optimizer",
    "host": "H host",
    "exposed": "exposed communication: waited for",
    "hidden": "hidden communication: beside computation",
    "idle": "idle",
}

_UNNUMBERED: Final = "unnumbered"
"""Beside the kinds that are drawn: most passes have no number."""
Letter = tuple[float, float, str, str]
"""Position, text and colour of a cell's label."""


@dataclass(frozen=True, slots=True)
class _Chart(TimeAxes):
    """Axes, scale and rows."""

    row_px: float
    lanes: tuple[str, ...]
    """Dimensions with their own lane below the cells."""
    cell_bottom: float
    """Lower edge of cells in a row of height 1."""
    n_chunks: int
    letter_points: float

    def cell(self, span: Span, end_s: float | None = None) -> Stretch:
        """Return the whole height of a cell, from the start of a span to its end or ``end_s``."""
        end_s, row = span.end_s if end_s is None else min(end_s, span.end_s), span.rank_class
        return span.start_s, end_s, row + _CELL_TOP, row + self.cell_bottom


def pipeline_gantt(metrics: Metrics, timeline: Timeline, ax: Axes | None = None, *, closed_form: float | None = None) -> Axes:
    """Draw passes, optimizer and host of every rank class over the step, and communication in thin lanes below them.

    Where passes would be too narrow to tell apart, only the beginning and the end of the step are drawn, and the subtitle
    says so. A strip at the lower edge of a cell is communication that stops the pass, its area in proportion. Of several steps a
    few from the middle are drawn.

    Parameters
    ----------
    closed_form
        What formulas expect of the bubble, as a share, to stand in the title beside what was simulated.
    """
    excerpt, timeline = excerpt_of(timeline), drawn_part(timeline)
    n_rows = max(len(timeline.rank_classes), 1)
    if ax is None:
        row_px = max(ROW_PX, LANE_PX * len(_lanes(timeline)) / (_LANES_BOTTOM - _LANES_TOP))
        body_px = max(min(ceil(row_px * max(n_rows, 2)), TALLEST_PX), SMALLEST_ROW_PX * min(n_rows, 64))
        ax = new_axes(body_px + _MARGINS.top + _MARGINS.bottom, margins_of(timeline))
    chart = _chart(ax, timeline, n_rows)
    ax.set_xlim(0, chart.scale.width_s or 1.0)
    ax.set_ylim(n_rows, 0)
    idle = [(0.0, timeline.step_time_s, row + _CELL_TOP, row + chart.cell_bottom) for row in range(n_rows)]
    add_boxes(ax, chart.boxes(idle)[0], palette.IDLE, hatched=True)
    cells = joined([span for span in timeline.spans if span.kind != "communication"])
    shown = {*_waits(timeline, cells), *_draw_cells(chart, cells), *_draw_lanes(chart, timeline, cells)}
    draw_time_axis(ax, chart.scale, "time" if metrics.steps and metrics.steps.steps > 1 else "time in the step")
    _draw_row_labels(chart, timeline)
    inside = {dimension for span in cells for dimension, _ in span.exposed_s}
    subtitle = _subtitle(chart, metrics, excerpt, exposed_inside=inside, unnumbered=_UNNUMBERED in shown)
    title, why = _title(metrics, closed_form), _difference(metrics, closed_form, cells, n_rows)
    caption(ax, title, f"{subtitle}; {why}" if why else subtitle)
    key(ax, [(label, palette.KIND_COLOURS[kind]) for kind, label in _KIND_LABELS.items() if kind in shown], below_px=48)
    return ax


def margins_of(timeline: Timeline) -> Margins:
    """Return margins with room for the longest name of a row."""
    longest = max(map(len, _row_names(timeline)), default=0)
    return replace(_MARGINS, left=max(_MARGINS.left, round(_NAME_PX + _LETTER_PX * longest)))


def _row_names(timeline: Timeline) -> list[str]:
    return [shortened(rank_class.name, _LONGEST_NAME) for rank_class in timeline.rank_classes]


def _chart(ax: Axes, timeline: Timeline, n_rows: int) -> _Chart:
    width_px, height_px = size_px(ax)
    row_px = height_px / n_rows
    # Rows without letters show the shape of the whole step; a break would take that from them and give nothing.
    scale = time_scale(timeline, width_px) if row_px >= _LEAST_BREAK_ROW_PX else whole_step(timeline)
    lanes = _lanes(timeline)
    if lanes and (_LANES_BOTTOM - _LANES_TOP) * row_px / len(lanes) < _LEAST_LANE_PX:
        lanes = ()
    px_per_s = width_px / (scale.width_s or 1.0)
    roomy = short_pass_s(timeline) * px_per_s >= _ROOMY_CELL_PX
    return _Chart(
        ax=ax,
        scale=scale,
        px_per_s=px_per_s,
        row_px=row_px,
        lanes=lanes,
        cell_bottom=_CELL_BOTTOM if lanes else 1 - _CELL_TOP,
        n_chunks=1 + max((span.chunk for span in timeline.spans), default=0),
        letter_points=_LARGE_LETTER_POINTS if roomy else _SMALL_LETTER_POINTS,
    )


def _lanes(timeline: Timeline) -> tuple[str, ...]:
    """Return the dimensions that communicate beside passes, in their order."""
    found = {span.dimension for span in timeline.spans if span.kind == "communication"}
    return tuple(dimension for dimension in DIMENSIONS if dimension in found)


def _draw_cells(chart: _Chart, cells: Sequence[Span]) -> Iterable[str]:
    """Draw what computes, and yield the kinds that were drawn."""
    groups: dict[str, dict[int, list[Span]]] = {}
    for span in cells:
        groups.setdefault(span.kind, {}).setdefault(max(span.chunk, 0), []).append(span)
    letters: list[Letter] = []
    n_passes = 0
    for kind, chunks in groups.items():
        drawn: list[tuple[Span, FloatArray, str]] = []
        for chunk, spans in chunks.items():
            colour = _lighter(palette.KIND_COLOURS[kind], chunk / max(chart.n_chunks - 1, 1))
            boxes, _ = chart.boxes([chart.cell(span) for span in spans])
            add_boxes(chart.ax, boxes, colour, edge_px=_edge_px(boxes, chart.px_per_s))
            free, which = chart.boxes([_free(chart, span) for span in spans])
            drawn += [(spans[index], box, palette.text_colour(colour)) for index, box in zip(which.tolist(), free, strict=True)]
        letters += _letters(chart, drawn)
        n_passes += sum(span.micro_batch >= 0 for span, _, _ in drawn)
        yield kind
    recomputed = [span for span in cells if span.recompute_s > 0 and span.kind != "recompute"]
    boxes, _ = chart.boxes([chart.cell(span, span.start_s + span.recompute_s) for span in recomputed])
    add_boxes(chart.ax, boxes, palette.RECOMPUTE, edge_px=_edge_px(boxes, chart.px_per_s))
    stopped = [span for span in cells if span.exposed_s and span.end_s > span.start_s]
    chart.draw([_strip(chart, span) for span in stopped], palette.EXPOSED)
    if chart.row_px * (chart.cell_bottom - _CELL_TOP) >= _LEAST_LETTER_ROW_PX and len(letters) <= LARGEST_LETTERS:
        for x, y, text, colour in letters:
            chart.ax.text(x, y, text, color=colour, fontsize=chart.letter_points, ha="center", va="center_baseline", clip_on=True)
    else:
        letters = []
    if 2 * sum(text[-1].isdigit() for _, _, text, _ in letters) < n_passes:
        yield _UNNUMBERED
    yield from (kind for kind, spans in (("recompute", recomputed), ("exposed", stopped)) if spans)


def _waits(timeline: Timeline, cells: Sequence[Span]) -> tuple[str, ...]:
    """Return ``idle`` if any rank class computes for less than the step, as far as an eye can see."""
    busy_s = fsum(span.end_s - span.start_s for span in cells)
    return ("idle",) if busy_s < (1 - 1e-3) * timeline.step_time_s * len(timeline.rank_classes) else ()


def _edge_px(boxes: FloatArray, px_per_s: float) -> float:
    """Return the width of white edges: none around narrow boxes, of which they would leave little."""
    return 0.8 if len(boxes) and float(np.median(boxes[:, 1] - boxes[:, 0])) * px_per_s >= 4 else 0.0


def _free(chart: _Chart, span: Span) -> Stretch:
    """Return the part of a cell that remains for a letter: beside recomputation and, if there is room, above the strip."""
    start_s, end_s, upper, lower = chart.cell(span)
    above = _strip(chart, span)[2] if span.end_s > span.start_s else lower
    roomy = (above - upper) * chart.row_px >= _LEAST_LETTER_ROW_PX
    return min(start_s + (0.0 if span.kind == "recompute" else span.recompute_s), end_s), end_s, upper, above if roomy else lower


def _strip(chart: _Chart, span: Span) -> Stretch:
    """Return a strip along the lower edge of a cell, as wide as the exposed share of the cell."""
    share = min(fsum(seconds for _, seconds in span.exposed_s) / (span.end_s - span.start_s), 1.0)
    start_s, end_s, _, lower = chart.cell(span)
    return start_s, end_s, span.rank_class + (chart.cell_bottom - share * (chart.cell_bottom - _CELL_TOP)), lower


def _letters(chart: _Chart, drawn: Sequence[tuple[Span, FloatArray, str]]) -> list[Letter]:
    """Return the letters of boxes of one kind, all in one form: ``F12`` or ``12``, whichever fits most; ``O`` without micro-batches."""
    if not drawn:
        return []
    rooms = [(float(box[1] - box[0]) * chart.px_per_s - 3) / (_LETTER_PX_PER_POINT * chart.letter_points) for _, box, _ in drawn]
    letter = palette.KIND_LETTERS.get(drawn[0][0].kind, "")
    numbers = [str(span.micro_batch) if span.micro_batch >= 0 else "" for span, _, _ in drawn]
    forms = ([letter + number for number in numbers], numbers)
    typical = float(np.median(rooms))
    texts = next((form for form in forms if 0 < max(map(len, form)) <= typical), [""] * len(drawn))
    return [
        (float(box[0] + box[1]) / 2, float(box[2] + box[3]) / 2, text, colour)
        for (_, box, colour), text, room in zip(drawn, texts, rooms, strict=True)
        if 0 < len(text) <= room
    ]


def _draw_lanes(chart: _Chart, timeline: Timeline, cells: Sequence[Span]) -> Iterable[str]:
    """Draw communication on its own streams, overlapped where its rank computes; yield which of both occurred."""
    n_rows = len(timeline.rank_classes)
    computing: list[list[Span]] = [[] for _ in range(n_rows)]
    for span in cells:
        computing[span.rank_class].append(span)
    busy = [busy_intervals(spans) for spans in computing]
    lanes: dict[tuple[str, int, str], list[Stretch]] = {}
    height = (_LANES_BOTTOM - _LANES_TOP) / max(len(chart.lanes), 1)
    for span in timeline.spans:
        if span.kind != "communication" or span.dimension not in chart.lanes:
            continue
        upper = _LANES_TOP + height * chart.lanes.index(span.dimension)
        for kind, pieces in zip(("hidden", "exposed"), split_by(span, busy[span.rank_class]), strict=True):
            found = [(start, end, span.rank_class + upper, span.rank_class + (upper + 0.85 * height)) for start, end in pieces]
            lanes.setdefault((kind, span.rank_class, span.dimension), []).extend(found)
    # Exposed communication is drawn last, so that it shows.
    for (kind, _, _), found in sorted(lanes.items(), key=lambda lane: lane[0][0] == "exposed"):
        chart.mark(found, palette.KIND_COLOURS[kind])
    return [kind for (kind, _, _), found in lanes.items() if found]


def _draw_row_labels(chart: _Chart, timeline: Timeline) -> None:
    names = _row_names(timeline)
    every = -(-len(names) // N_LABELS_SHOWN) if names else 1
    middle = (_CELL_TOP + chart.cell_bottom) / 2
    name_rows(chart.ax, [row + middle for row in range(0, len(names), every)], names[::every])
    height = (_LANES_BOTTOM - _LANES_TOP) / max(len(chart.lanes), 1)
    if height * chart.row_px < LANE_PX:
        return
    for row in range(len(names)):
        for place, dimension in enumerate(chart.lanes):
            # As wide as the margin: OFF for offload.
            name, y = dimension.upper()[:3], row + _LANES_TOP + height * (place + 0.4)
            beside(chart.ax, y, name, away_points=4)


def _title(metrics: Metrics, closed_form: float | None) -> str:
    whole, unfit = f"{metrics.scenario}, {gpus_text(metrics)}", unfit_text({"": metrics.memory.fits})
    if metrics.bubble_fraction >= 0.005:
        expected = "" if closed_form is None else f" (closed form {percent_text(closed_form)})"
        return f"{whole}: {percent_text(metrics.bubble_fraction)} of the step is pipeline bubble{expected}{unfit}"
    return f"{whole}: {computing_percent(metrics):.1f} % of the step computes{unfit}"


def _difference(metrics: Metrics, closed_form: float | None, cells: Sequence[Span], n_rows: int) -> str:
    """Return why the bubble is not that of the closed form; empty where it is."""
    if closed_form is None or abs(metrics.bubble_fraction - closed_form) < _CLOSE:
        return ""
    busy_s = [0.0] * n_rows
    for span in cells:
        busy_s[span.rank_class] += span.end_s - span.start_s if span.kind in _PASSES else 0.0
    longer = max(busy_s) / (fsum(busy_s) / n_rows) - 1.0
    uneven = f"the slowest stage computes {percent_text(longer)} longer than the mean" if longer >= _CLOSE else ""
    waits = "stages wait for sends" if metrics.breakdown_s.exposed_communication.pp >= _CLOSE * metrics.step_time_s else ""
    found = " and ".join(filter(None, (uneven, waits))) or "not all time of the step is in the pipeline"
    return f"the closed form has equal stages and no transfers, but {found}"


def _subtitle(chart: _Chart, metrics: Metrics, excerpt: Excerpt | None, *, exposed_inside: Collection[str], unnumbered: bool) -> str:
    each = format_quantity(metrics.step_time_s, "s")
    shown = None if excerpt is None or excerpt.n_steps == 1 else excerpt.text
    parts = [f"one step of {each}" if shown is None else f"{shown}, {each} each on average"]
    if shown is None and metrics.step_time_s < chart.scale.step_s:
        parts.append("each stage begins the next one when it has ended this")
    if chart.scale.is_broken:
        first, last = (format_quantity(end - start, "s") for start, end in chart.scale.windows)
        parts.append(f"only its first {first} and last {last} are drawn")
    if unnumbered:
        parts.append("passes without a number are too narrow for one")
    if chart.n_chunks > 1:
        parts.append("lighter cells are later model chunks")
    if exposed_inside:
        names = " and ".join(dimension.upper() for dimension in DIMENSIONS if dimension in exposed_inside)
        parts.append(f"orange at the foot of a pass: its share of {names} communication that it waits for")
    if chart.lanes:
        names = " and ".join(lane.upper() for lane in chart.lanes)
        parts.append(f"below each row: {names} communication, as high as its share where it is too short to be told apart")
    return "; ".join(parts)


def _lighter(colour: str, share: float) -> str:
    """Return the colour mixed with white, at most by ``_LIGHTER_AT_MOST``."""
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(value + (255 - value) * _LIGHTER_AT_MOST * share):02X}" for value in channels)
