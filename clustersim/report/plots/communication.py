"""Which collectives the step waits for, and which are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.measure.exposure import Exposure, exposures
from clustersim.report import palette
from clustersim.report.facts import gpus_text
from clustersim.report.plots.canvas import (
    Margins,
    add_boxes,
    caption,
    key,
    name_rows,
    new_axes,
    say_empty,
    set_times,
    size_px,
    write,
)
from clustersim.report.shares import share_text
from clustersim.report.subject import Subject
from clustersim.units.divisors import shortened
from clustersim.units.quantity import format_quantity

ROW_PX: Final = 58
MOST_ROWS: Final = 10

_MARGINS: Final = Margins(left=60, right=290, top=80, bottom=88)
_TALLEST: Final = 0.8
_LETTER_PX: Final = 7.0
_NAME_LETTER_PX: Final = 7.4


def communication(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw a bar for each kind of communication, longest first: exposed and overlapped time."""
    subject = subjects[0]
    metrics = subject.metrics
    rows = exposures(metrics, subject.timeline)
    shown = rows[:MOST_ROWS]
    if ax is None:
        names_px = round(max(map(len, map(_name, shown)), default=0) * _NAME_LETTER_PX)
        height_px = _MARGINS.top + _MARGINS.bottom + ROW_PX * max(len(shown), 2)
        ax = new_axes(height_px, replace(_MARGINS, left=_MARGINS.left + names_px))
    longest_s = max([0.0, *(row.exposed_s + row.hidden_s for row in shown)]) or metrics.step_time_s
    ax.set_xlim(0, longest_s)
    ax.set_ylim(max(len(shown), 1), 0)
    for place, row in enumerate(shown):
        _draw_row(ax, place, row, metrics.step_time_s)
    set_times(ax, longest_s, "of one step, mean over ranks", n_most=8)
    name_rows(ax, [place + 0.5 for place in range(len(shown))], [_name(row) for row in shown])
    left_out = f"; {len(rows) - len(shown)} shorter ones are left out" if len(rows) > len(shown) else ""
    subtitle = f"a step of {format_quantity(metrics.step_time_s, 's')}; the square has the colour of the dimension{left_out}"
    caption(ax, f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(rows, metrics.step_time_s)}", subtitle)
    if not rows:
        say_empty(ax, "nothing is communicated")
    key(ax, [("exposed: the step waits for it", palette.EXPOSED), ("overlapped with computation", palette.HIDDEN)], below_px=50)
    return ax


def _draw_row(ax: Axes, place: int, row: Exposure, step_s: float) -> None:
    width_px, height_px = size_px(ax)
    px_per_s = width_px / ax.get_xlim()[1]
    lower, upper = place + 0.5 + _TALLEST / 2 * 0.75, place + 0.5 - _TALLEST / 2 * 0.75
    ends = (0.0, row.exposed_s, row.exposed_s + row.hidden_s)
    for start_s, end_s, colour in zip(ends, ends[1:], (palette.EXPOSED, palette.HIDDEN), strict=False):
        add_boxes(ax, np.array([[start_s, end_s, lower, upper]]), colour)
        text = format_quantity(end_s - start_s, "s")
        if (len(text) + 1) * _LETTER_PX <= (end_s - start_s) * px_per_s:
            ax.text((start_s + end_s) / 2, place + 0.5, text, color=palette.text_colour(colour), ha="center", va="center", fontsize=9.5)
    waits = f"exposed {share_text(row.exposed_s / step_s)} of the step" if row.exposed_s > 0.0 else "all hidden"
    write(ax, f"{format_quantity(row.exposed_s + row.hidden_s, 's')}, {waits}", (ends[-1], place + 0.5), (6, 0))
    half = 6.0 / height_px * ax.get_ylim()[0]
    box = np.array([[-22.0 / px_per_s, -10.0 / px_per_s, place + 0.5 + half, place + 0.5 - half]])
    add_boxes(ax, box, palette.DIMENSION_COLOURS[row.dimension])
    ax.collections[-1].set_clip_on(False)


def _name(row: Exposure) -> str:
    name = f"{row.dimension.upper() if len(row.dimension) == 2 else row.dimension} {row.label}"
    return shortened(name, 36) + 5 * " "


def _finding(rows: Sequence[Exposure], step_s: float) -> str:
    waited = sorted((row for row in rows if row.exposed_s > 0.0), key=lambda row: -row.exposed_s)
    if not rows:
        return "nothing is communicated"
    if not waited:
        return "all communication is hidden"
    return f"the step waits longest for {waited[0].dimension.upper()} {waited[0].label}, {share_text(waited[0].exposed_s / step_s)} of it"
