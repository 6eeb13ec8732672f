"""Goodput of a job over the interval between checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from clustersim.errors import ScenarioError
from clustersim.measure.goodput_report import BestInterval
from clustersim.reliability import Upkeep, steady_shares, with_interval
from clustersim.report import palette
from clustersim.report.facts import gpus_text, percent_text
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, draw_grid, new_axes, paper, round_values, write
from clustersim.report.subject import Subject
from clustersim.units.quantity import format_quantity

HEIGHT_PX: Final = 560

_MARGINS: Final = Margins(left=110, right=190, top=84, bottom=72)
# fmt: off
_TICKS_S: Final = (
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0, 7200.0, 14400.0, 28800.0,
    86400.0, 172800.0, 604800.0,
)
# fmt: on
"""Round times in seconds, minutes, hours and days."""
_WIDER: Final = 2.5


def goodput_curve(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw goodput over the checkpoint interval: closed form, replays, and the interval of the scenario.

    Raises
    ------
    ScenarioError
        When the scenario says nothing of failures, or checkpoints cost nothing.
    """
    subject = subjects[0]
    if subject.goodput is None or subject.upkeep is None:
        hint = "add such as 'reliability: {node_mtbf: 5 years, restart: 8 min}' to its scenario"
        raise ScenarioError(f"{subject.label} says nothing of failures", hint=hint)
    best = subject.goodput.best_interval
    if best is None:
        raise ScenarioError(
            f"{subject.label} loses nothing to checkpoints", hint="no interval is better than another without failures or stalls"
        )
    set_s = subject.goodput.checkpoint.interval_s
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    marks = [best.closed_form_s, best.young_s, best.daly_s, set_s, *(point.interval_s for point in best.replayed)]
    low, high = min(marks) / _WIDER, max(marks) * _WIDER
    intervals_s = np.geomspace(low, high, 160)
    curve = [100 * _useful(subject.upkeep, float(each)) for each in intervals_s]
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.plot(intervals_s, curve, color=palette.FORWARD, linewidth=2.2, zorder=3)
    write(ax, "closed form", (high, curve[-1]), (6, 0), color=palette.FORWARD, fontsize=10)
    _draw_replayed(ax, best)
    top = max(100 * best.goodput_fraction, *(100 * point.confidence_interval_fraction[1] for point in best.replayed), *curve)
    bottom = min([*curve, *(100 * point.confidence_interval_fraction[0] for point in best.replayed)])
    room = max(top - bottom, 0.01)
    ax.set_ylim(max(0.0, bottom - 0.05 * room), top + 0.28 * room)
    _mark(ax, best.closed_form_s, f"best {format_quantity(best.closed_form_s, 's')}", 0.97, strong=True)
    _mark(ax, best.young_s, f"Young {format_quantity(best.young_s, 's')}", 0.91)
    _mark(ax, set_s, f"as set {format_quantity(set_s, 's')}", 0.85)
    ticks = [tick for tick in _TICKS_S if low <= tick <= high]
    ax.set_xticks(ticks, [format_quantity(tick, "s") for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks([value for value in round_values(*ax.get_ylim(), 7) if value <= 100.0])
    ax.ticklabel_format(axis="y", useOffset=False)
    draw_grid(ax)
    ax.set_xlabel("training between two checkpoints", loc="right")
    ax.set_ylabel("goodput, %", loc="top")
    caption(ax, _finding(subject, best, set_s), _subtitle(subject))
    return ax


def _useful(upkeep: Upkeep, interval_s: float) -> float:
    return steady_shares(replace(upkeep, checkpoints=with_interval(upkeep.checkpoints, interval_s))).useful


def _draw_replayed(ax: Axes, best: BestInterval) -> None:
    """Draw what was replayed, with the interval of confidence."""
    for point in best.replayed:
        low, high = point.confidence_interval_fraction
        ax.plot([point.interval_s] * 2, [100 * low, 100 * high], color=palette.BACKWARD, linewidth=1.6, zorder=4)
    xs, ys = [point.interval_s for point in best.replayed], [100 * point.goodput_fraction for point in best.replayed]
    ax.plot(xs, ys, color=palette.BACKWARD, linestyle="none", marker="o", markersize=6, markeredgecolor="white", zorder=5)
    if best.replayed:
        last = max(best.replayed, key=lambda point: point.interval_s)
        place = (last.interval_s, 100 * last.goodput_fraction)
        write(ax, "replayed, 95 %", place, (6, 8), va="bottom", color=palette.BACKWARD, fontsize=10)


def _mark(ax: Axes, at_s: float, text: str, height: float, *, strong: bool = False) -> None:
    ax.axvline(at_s, color=INK if strong else FAINT_INK, linewidth=1.2 if strong else 0.8, linestyle=(0, (5, 2)), zorder=2)
    weight = "bold" if strong else "normal"
    write(ax, text, (at_s, height), (5, 0), of=("data", "axes fraction"), fontweight=weight, bbox=paper(1.0))


def _finding(subject: Subject, best: BestInterval, set_s: float) -> str:
    assert subject.upkeep is not None
    lost = best.goodput_fraction - _useful(subject.upkeep, set_s)
    every = format_quantity(best.closed_form_s, "s")
    saved = f"goodput is highest, {percent_text(best.goodput_fraction)}, with a checkpoint every {every}"
    less = f"; {format_quantity(set_s, 's')} as set loses {100 * lost:.2f} points" if lost >= 5e-5 else ""
    return f"{subject.metrics.scenario}, {gpus_text(subject.metrics)}: {saved}{less}"


def _subtitle(subject: Subject) -> str:
    report = subject.goodput
    assert report is not None
    every = report.mean_time_to_interruption_s
    stops = "nothing fails" if every is None else f"an interruption every {format_quantity(every, 's')}"
    return f"{stops}; a checkpoint stalls training for {format_quantity(report.checkpoint.stall_s, 's')}"
