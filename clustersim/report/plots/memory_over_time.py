"""Memory of one rank of each class over time, against the capacity."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import gpus_text, memory_text
from clustersim.report.plots.canvas import (
    DPI,
    FAINT_INK,
    INK,
    FloatArray,
    Margins,
    beside,
    caption,
    key,
    new_axes,
    paper,
    round_locator,
    set_times,
    size_px,
    spaced,
    write,
)
from clustersim.trace.memory_curves import STACK, MemoryCurve
from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_quantity

MOST_ROWS: Final = 6
"""Stages in the picture; of more, a number of them from the first to the last."""
LOW: Final = 0.45
"""Share of the capacity; if no peak is above it, the line of the capacity is left out."""
ROW_PX: Final = 150
LONE_ROW_PX: Final = 380

MARGINS: Final = Margins(left=120, right=132, top=92, bottom=88)
_BETWEEN_PX: Final = 18
_ABOVE_PX: Final = 26
"""Free above the highest line, for the words at a peak."""
_LETTER_PX: Final = 7.0
_LABEL_PX: Final = 15.0
_LABEL_POINTS: Final = 9.5
_GIB: Final = 2.0**30


def memory_over_time(metrics: Metrics, timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw a row for each rank class, the memory of one rank stacked by what it holds, with its peak marked.

    Returns
    -------
    Axes
        Around all rows; those of the rows are the others of its figure.
    """
    curves = _shown(timeline)
    row_px = LONE_ROW_PX if len(curves) < 2 else ROW_PX
    body_px = max(len(curves), 1) * (row_px + _BETWEEN_PX) - _BETWEEN_PX
    whole = new_axes(body_px + MARGINS.top + MARGINS.bottom, MARGINS) if ax is None else ax
    row_px = (size_px(whole)[1] + _BETWEEN_PX) / max(len(curves), 1) - _BETWEEN_PX
    whole.set_axis_off()
    caption(whole, _title(metrics, timeline), _subtitle(timeline, len(curves)))
    held = {name for curve in curves for name, sizes in curve.parts_bytes.items() if max(sizes, default=0.0) > 0.0}
    key(whole, [(name, palette.MEMORY_COLOURS[name]) for name in STACK if name in held], below_px=52)
    capacity_bytes = metrics.memory.capacity_bytes
    held_bytes = max([0.0, *(curve.peak_bytes for curve in curves)])
    highest_bytes = held_bytes if held_bytes < LOW * capacity_bytes else max(capacity_bytes, held_bytes)
    for row, curve in enumerate(curves):
        ax = _row_axes(whole, row, row_px)
        # Of several steps, which are alike in memory, the first.
        ax.set_xlim(0, timeline.step_time_s or 1.0)
        ax.set_ylim(0, (highest_bytes or _GIB) / _GIB * row_px / (row_px - _ABOVE_PX))
        _draw_stack(ax, curve)
        _draw_capacity(ax, capacity_bytes, first=row == 0)
        _mark_peak(ax, curve, over=curve.peak_bytes > capacity_bytes)
        _draw_scales(ax, first=row == 0, last=row == len(curves) - 1)
        if len(curves) > 1:
            _name(ax, f"stage {timeline.rank_classes[curve.rank_class].stage}")
    return whole


def _shown(timeline: Timeline) -> list[MemoryCurve]:
    """Return the curves that are drawn: the fullest of each stage, or some of these with the fullest of all."""
    by_stage: dict[int, MemoryCurve] = {}
    for curve in timeline.memory:
        stage = timeline.rank_classes[curve.rank_class].stage
        by_stage[stage] = max(by_stage.get(stage, curve), curve, key=lambda each: each.peak_bytes)
    curves = list(by_stage.values())
    if not curves:
        return []
    fullest = max(range(len(curves)), key=lambda place: curves[place].peak_bytes)
    return [curves[place] for place in spaced(len(curves), MOST_ROWS, fullest)]


def _row_axes(whole: Axes, row: int, row_px: float) -> Axes:
    """Return axes for a row of the whole, counted from above."""
    figure = whole.figure
    assert isinstance(figure, Figure)
    box = whole.get_position()
    height = row_px / size_px(whole)[1] * box.height
    step = (row_px + _BETWEEN_PX) / size_px(whole)[1] * box.height
    return figure.add_axes((box.x0, box.y1 - row * step - height, box.width, height))


def _draw_stack(ax: Axes, curve: MemoryCurve) -> None:
    time_s = np.array(curve.time_s, dtype=np.float64)
    at_peak = int(np.argmax(np.array(curve.total_bytes)))
    lower: FloatArray = np.zeros(len(time_s))
    for name in STACK:
        sizes = curve.parts_bytes[name]
        upper = lower + np.array(sizes) / _GIB
        ax.fill_between(time_s, lower, upper, color=palette.MEMORY_COLOURS[name], linewidth=0)
        if sizes[at_peak] > 0:
            _write_inside(ax, time_s, (lower, upper), f"{name} {sizes[at_peak] / _GIB:.3g}", palette.MEMORY_COLOURS[name])
        lower = upper
    ax.plot(time_s, lower, color=INK, linewidth=0.9)


def _write_inside(ax: Axes, time_s: FloatArray, band: tuple[FloatArray, FloatArray], text: str, colour: str) -> None:
    """Write into an area what it is, and its height at the peak, where it is high enough for as long as the words are."""
    width_px, height_px = size_px(ax)
    (_, end_s), (_, top_gib) = ax.get_xlim(), ax.get_ylim()
    lower, upper = band
    needed_s = (len(text) + 1) * _LETTER_PX / width_px * end_s
    needed_gb = _LABEL_PX / height_px * top_gib
    grid_s = np.linspace(0.0, end_s, 400)
    low, high = np.interp(grid_s, time_s, lower), np.interp(grid_s, time_s, upper)
    # Where the area is highest, if the words fit in there.
    found = (_longest(grid_s, low, high, factor * needed_gb) for factor in (8.0, 4.0, 2.0, 1.0))
    start_s, until_s, middle_gb = next((each for each in found if each[1] - each[0] >= needed_s), (0.0, 0.0, 0.0))
    if until_s <= start_s:
        return
    ax.text(
        (start_s + until_s) / 2,
        middle_gb,
        text,
        color=palette.text_colour(colour),
        fontsize=_LABEL_POINTS,
        ha="center",
        va="center_baseline",
        clip_on=True,
    )


def _longest(grid_s: FloatArray, low: FloatArray, high: FloatArray, needed_gb: float) -> tuple[float, float, float]:
    """Return start and end of the longest time in which an area is so high and level enough, and the height of its words."""
    best = (0.0, 0.0, 0.0)
    start = 0
    floor, ceiling = -np.inf, np.inf
    for index in range(len(grid_s)):
        floor, ceiling = max(floor, float(low[index])), min(ceiling, float(high[index]))
        if ceiling - floor < needed_gb:
            start, floor, ceiling = index, float(low[index]), float(high[index])
            if ceiling - floor < needed_gb:
                start, floor, ceiling = index + 1, -np.inf, np.inf
                continue
        if grid_s[index] - grid_s[start] > best[1] - best[0]:
            best = (float(grid_s[start]), float(grid_s[index]), (floor + ceiling) / 2)
    return best


def _draw_capacity(ax: Axes, capacity_bytes: float, *, first: bool) -> None:
    """Draw the line of what there is, where it is in the picture, and name it beside the first row."""
    capacity_gib, top_gib = capacity_bytes / _GIB, ax.get_ylim()[1]
    text = f"capacity\n{memory_text(capacity_bytes)}"
    if capacity_gib < top_gib:
        ax.axhline(capacity_gib, color=INK, linewidth=1.2, linestyle=(0, (5, 2)))
    else:
        text += f",\n{capacity_gib / top_gib:.2g} times\nthis height"
    if first:
        beside(ax, min(capacity_gib, top_gib), text, away_points=6, va="center" if capacity_gib < top_gib else "top", color=INK)


def _mark_peak(ax: Axes, curve: MemoryCurve, *, over: bool) -> None:
    """Draw a ring at the peak, and say how high it is, and what runs then."""
    peak_gib = curve.peak_bytes / _GIB
    ax.plot([curve.peak_at_s], [peak_gib], marker="o", markersize=6, markerfacecolor="white", markeredgecolor=INK, zorder=5, clip_on=False)
    during = f", {curve.peak_during}" if curve.peak_during else ""
    left = curve.peak_at_s > 0.6 * ax.get_xlim()[1]
    text = f"{memory_text(curve.peak_bytes)} at {format_quantity(curve.peak_at_s, 's')}{during}"
    aside, ha = (-7, "right") if left else (7, "left")
    weight, box = "bold" if over else "normal", {**paper(0.8), "alpha": 0.85}
    write(ax, text, (curve.peak_at_s, peak_gib), (aside, 4), ha=ha, va="bottom", fontsize=10.0, fontweight=weight, bbox=box, zorder=5)


def _draw_scales(ax: Axes, *, first: bool, last: bool) -> None:
    set_times(ax, ax.get_xlim()[1], "time in the step")
    ax.yaxis.set_major_locator(round_locator(4 if size_px(ax)[1] < 2 * ROW_PX else 8))
    ax.tick_params(labelsize=9.5, labelbottom=last)
    if not last:
        ax.set_xlabel("")
    if first:
        write(ax, "GiB", (0, 1), (-6, 2), of="axes fraction", ha="right", va="baseline", color=FAINT_INK)


def _name(ax: Axes, name: str) -> None:
    write(ax, name, (0, 0.5), (-(MARGINS.left - 8) * 72 / DPI, 0), of="axes fraction", fontsize=10)


def _title(metrics: Metrics, timeline: Timeline) -> str:
    whole = f"{metrics.scenario}, {gpus_text(metrics)}"
    if not timeline.memory:
        return whole
    fullest = max(timeline.memory, key=lambda curve: curve.peak_bytes)
    who = f"stage {timeline.rank_classes[fullest.rank_class].stage}" if metrics.parallelism.pp > 1 else "a GPU"
    peak, capacity = (memory_text(size) for size in (fullest.peak_bytes, metrics.memory.capacity_bytes))
    size = f"at most {peak} of {capacity}" if metrics.memory.fits else f"{peak}, which is more than {capacity},"
    during = f" in the {fullest.peak_during}" if fullest.peak_during else ""
    return f"{whole}: {who} holds {size}{during}"


def _subtitle(timeline: Timeline, n_shown: int) -> str:
    stages = {rank_class.stage: None for rank_class in timeline.rank_classes}
    parts = ["memory of one GPU in GiB, by what it holds; numbers are those at the peak"]
    if timeline.steps is not None:
        parts.append("the first step")
    if n_shown < len(stages):
        parts.append(f"{n_shown} of {len(stages)} stages")
    return "; ".join(parts)
