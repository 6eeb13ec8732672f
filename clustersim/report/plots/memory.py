"""Peak memory of one rank of every stage by content, against the capacity."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import gpus_text, memory_parts, memory_text, memory_verdict, shown_stages
from clustersim.report.plots.canvas import (
    FAINT_INK,
    INK,
    Margins,
    add_boxes,
    caption,
    key,
    name_rows,
    new_axes,
    paper,
    round_locator,
    size_px,
    write,
)
from clustersim.trace.timeline import Timeline

ROW_PX: Final = 44
SMALLEST_ROW_PX: Final = 14
TALLEST_PX: Final = 900
N_LABELS_SHOWN: Final = 32

MARGINS: Final = Margins(left=90, right=60, top=96, bottom=84)
_CELL: Final = (0.1, 0.9)
_LETTER_PX: Final = 7.0
_LEAST_LETTER_ROW_PX: Final = 18.0
_GIB: Final = 2.0**30


def memory_by_stage(metrics: Metrics, timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw a bar for each stage, stacked by category of memory, and the capacity as a line."""
    stages = metrics.memory.by_stage
    n_rows = max(len(stages), 1)
    if ax is None:
        body_px = max(min(ROW_PX * max(n_rows, 2), TALLEST_PX), SMALLEST_ROW_PX * min(n_rows, 64))
        ax = new_axes(body_px + MARGINS.top + MARGINS.bottom, MARGINS)
    width_px, height_px = size_px(ax)
    capacity_gib = metrics.memory.capacity_bytes / _GIB
    largest_gib = max([capacity_gib, *(stage.peak_bytes / _GIB for stage in stages)])
    ax.set_xlim(0, (largest_gib or 1.0) * 1.08)
    ax.set_ylim(n_rows, 0)
    _draw_bars(ax, metrics, px_per_gib=width_px / ax.get_xlim()[1], row_px=height_px / n_rows)
    ax.axvline(capacity_gib, color=INK, linewidth=1.5, zorder=2)
    capacity = f"capacity {memory_text(metrics.memory.capacity_bytes)}"
    write(ax, capacity, (capacity_gib, 1), (0, 3), of=("data", "axes fraction"), ha="center", va="bottom")
    piped = len(stages) > 1
    every = -(-n_rows // N_LABELS_SHOWN)
    names = [f"stage {stage.stage}" if piped else "a GPU" for stage in stages[::every]]
    name_rows(ax, [row + 0.5 for row in range(0, len(stages), every)], names)
    ax.xaxis.set_major_locator(round_locator(10))
    ax.set_xlabel("memory of one GPU at its peak, GiB", loc="right")
    caption(ax, _title(metrics, timeline), f"by what it holds{'; one rank of each stage' if piped else ''}", lift_points=10)
    held = {name for stage in stages for name, size in memory_parts(stage).items() if size > 0.0}
    key(ax, [(name, colour) for name, colour in palette.MEMORY_COLOURS.items() if name in held], below_px=48)
    return ax


def _draw_bars(ax: Axes, metrics: Metrics, *, px_per_gib: float, row_px: float) -> None:
    stages = metrics.memory.by_stage
    lefts = np.zeros(len(stages), dtype=np.float64)
    rows = np.arange(len(stages), dtype=np.float64)
    lettered = row_px >= _LEAST_LETTER_ROW_PX
    for name, colour in palette.MEMORY_COLOURS.items():
        sizes = np.array([memory_parts(stage)[name] / _GIB for stage in stages], dtype=np.float64)
        rights = lefts + sizes
        add_boxes(ax, np.stack([lefts, rights, rows + _CELL[0], rows + _CELL[1]], axis=1), colour, edge_px=1.0 if lettered else 0.0)
        for row, (left, right) in enumerate(zip(lefts.tolist(), rights.tolist(), strict=True)):
            number = f"{right - left:.3g}"
            room = (right - left) * px_per_gib / _LETTER_PX
            text = next((text for text in (f"{name} {number}", number) if len(text) + 1 <= room), "") if lettered else ""
            if text:
                ink, box = palette.text_colour(colour), paper(1.0, colour)
                ax.text((left + right) / 2, row + 0.5, text, color=ink, fontsize=9.5, ha="center", va="center", bbox=box)
        lefts = rights
    if row_px < 12:
        return
    for row, stage in enumerate(stages):
        over = stage.peak_bytes > metrics.memory.capacity_bytes
        weight, colour = ("bold", INK) if over else ("normal", FAINT_INK)
        place = stage.peak_bytes / _GIB, row + 0.5
        # A box behind a label keeps the line of the capacity out of it.
        write(ax, memory_text(stage.peak_bytes), place, (5, 0), fontweight=weight, color=colour, bbox=paper(1.0))


def _title(metrics: Metrics, timeline: Timeline) -> str:
    stages = metrics.memory.by_stage
    whole = f"{metrics.scenario}, {gpus_text(metrics)}: {memory_verdict(metrics)}"
    if len(timeline.rank_classes) < 2 or len(stages) < 2:
        return whole
    ((label, _),), _ = shown_stages(metrics, 1)
    return f"{whole}; {label} {'need' if label.startswith('stages') else 'needs'} most"
