"""Bounds of the kernels: the arithmetic, the memory, or the wires."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from clustersim.measure.utilisation import used_links
from clustersim.report import palette
from clustersim.report.facts import gpus_text, percent_text
from clustersim.report.plots.breakdown import spread
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, new_axes, size_px
from clustersim.report.subject import DataSheetPeaks, KernelGroup, Subject
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_PX: Final = 620
MOST_POINTS: Final = 12
"""Groups of kernels, those that take longest."""

_MARGINS: Final = Margins(left=120, right=330, top=84, bottom=66)
_LINE_PX: Final = 17.0
_WIRES: Final = (("nvlink", "NVLink", "tp"), ("nic", "NIC", "dp"))
"""Tier, its name, and the dimension whose colour it has."""


def roofline(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw the arithmetic rate of kernels over their intensity, under the roofs of arithmetic and memory; the step over its wires too.

    A point of a kernel has the bytes of the accelerator's memory; the diamonds are the whole step with the bytes that an accelerator
    sends over each kind of wire. References: S. Williams, A. Waterman and D. Patterson, "Roofline", CACM 52(4), 2009.
    """
    subject = subjects[0]
    ceilings, metrics = subject.ceilings, subject.metrics
    assert ceilings is not None
    kernels = _longest(subject.kernels)
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xscale("log")
    ax.set_yscale("log")
    points = [(each.flops / each.traffic_bytes, each.flops / each.seconds) for each in kernels]
    wires = _wires(subject)
    rate = metrics.hardware_flops_per_step / metrics.step_time_s / metrics.gpus
    xs = [x for x, _ in points] + [intensity for _, intensity, _, _ in wires]
    ys = [y for _, y in points] + [rate]
    peak = ceilings.peak_flops_per_s
    ax.set_xlim(min([*xs, 1.0]) / 2, max([*xs, 4 * peak / ceilings.memory_bytes_per_s]) * 3)
    ax.set_ylim(min([*ys, 0.1 * peak]) / 3, peak * 2.2)
    _draw_roofs(ax, ceilings, wires)
    time_s = fsum(each.seconds for each in subject.kernels) or 1.0
    for each, (x, y) in zip(kernels, points, strict=True):
        ax.scatter([x], [y], s=40 + 700 * each.seconds / time_s, color=palette.FORWARD, alpha=0.75, edgecolor="white", zorder=4)
    for name, intensity, colour, _ in wires:
        ax.plot([intensity], [rate], marker="D", markersize=9, color=colour, markeredgecolor="white", linestyle="none", zorder=5)
        ax.annotate(
            f"step, {name}", (intensity, rate), xytext=(0, -9), textcoords="offset points", ha="center", va="top", fontsize=9, color=colour
        )
    names = [f"{each.name} {100 * each.seconds / time_s:.0f} %" for each in kernels]
    _label(ax, [(*point, name) for point, name in zip(points, names, strict=True)])
    for axis, unit in ((ax.xaxis, ""), (ax.yaxis, "FLOP/s")):
        low, high = axis.get_view_interval()
        steps = (1.0, 2.0, 5.0) if unit else (1.0,)
        values = [step * 10.0**power for power in range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1) for step in steps]
        shown = [value for value in values if low <= value <= high]
        axis.set_major_locator(FixedLocator(shown))
        axis.set_ticklabels([format_quantity(value, unit) if unit else f"{value:,g}" for value in shown])
        axis.set_minor_locator(NullLocator())
    ax.set_xlabel("FLOP for each byte", loc="right")
    title = f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(subject, ceilings)}"
    caption(ax, title, "a point for each kind of kernel, as large as its share of the computing time, which is beside its name")
    return ax


def _longest(kernels: Sequence[KernelGroup]) -> list[KernelGroup]:
    """Return the groups that compute, those that take longest first."""
    computing = [each for each in kernels if each.flops > 0.0 and each.traffic_bytes > 0.0 and each.seconds > 0.0]
    return sorted(computing, key=lambda each: (-each.seconds, each.name))[:MOST_POINTS]


def _wires(subject: Subject) -> list[tuple[str, float, str, float]]:
    """Return name, FLOP for each byte, colour and bandwidth of what an accelerator sends over each kind of wire."""
    ceilings, metrics = subject.ceilings, subject.metrics
    assert ceilings is not None
    speeds = {"nvlink": ceilings.scale_up_bytes_per_s, "nic": ceilings.nic_bytes_per_s}
    used = used_links(subject.timeline)
    found: list[tuple[str, float, str, float]] = []
    for tier, name, dimension in _WIRES:
        # Each byte crosses a wire on its way out and another one on its way in.
        sent_bytes = sum(link.bytes * link.n_links for link in used.get(tier, [])) / 2
        if sent_bytes > 0.0 and speeds[tier] > 0.0:
            intensity = metrics.hardware_flops_per_step / sent_bytes
            found.append((name, intensity, palette.DIMENSION_COLOURS[dimension], speeds[tier]))
    return found


def _draw_roofs(ax: Axes, ceilings: DataSheetPeaks, wires: Sequence[tuple[str, float, str, float]]) -> None:
    low, high = ax.get_xlim()
    floor = ax.get_ylim()[0]
    peak = ceilings.peak_flops_per_s
    roofs = [("memory", ceilings.memory_bytes_per_s, INK), *((name, speed, colour) for name, _, colour, speed in wires)]
    ax.plot([low, high], [peak, peak], color=INK, linewidth=1.6)
    ax.annotate(f"peak {format_quantity(peak, 'FLOP/s')}", (low, peak), xytext=(6, 4), textcoords="offset points", ha="left", fontsize=9.5)
    width_px, height_px = size_px(ax)
    angle = float(np.degrees(np.arctan2(height_px / np.log10(ax.get_ylim()[1] / floor), width_px / np.log10(high / low))))
    for name, speed, colour in roofs:
        ridge = peak / speed
        start = max(low, floor / speed)
        if ridge <= start:
            continue
        ax.plot(
            [start, min(ridge, high)], [start * speed, min(ridge, high) * speed], color=colour, linewidth=1.6 if name == "memory" else 1.2
        )
        at = float(np.exp(0.62 * np.log(start) + 0.38 * np.log(min(ridge, high))))
        ax.annotate(
            f"{name} {format_quantity(speed, 'B/s')}",
            (at, at * speed),
            xytext=(-3, 5),
            textcoords="offset points",
            rotation=angle,
            rotation_mode="anchor",
            fontsize=9,
            color=colour,
            va="bottom",
        )


def _label(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    height_px = size_px(ax)[1]
    low, high = (float(np.log(end)) for end in ax.get_ylim())
    ordered = sorted(points, key=lambda point: (point[1], point[0]))
    wanted_px = [(float(np.log(y)) - low) / (high - low) * height_px for _, y, _ in ordered]
    places_px = spread(wanted_px, [_LINE_PX] * len(ordered), height_px, between_px=0.0)
    for (x, y, name), place_px in zip(ordered, places_px, strict=True):
        ax.annotate(
            name,
            (x, y),
            xytext=(1.0 + 20 / size_px(ax)[0], place_px / height_px),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": palette.STALL, "linewidth": 0.6, "shrinkA": 1.0, "shrinkB": 3.0, "relpos": (0.0, 0.5)},
            color=FAINT_INK,
        )


def _finding(subject: Subject, ceilings: DataSheetPeaks) -> str:
    ridge = ceilings.peak_flops_per_s / ceilings.memory_bytes_per_s
    total_s = fsum(each.seconds for each in subject.kernels) or 1.0
    bound_s = fsum(each.seconds for each in subject.kernels if each.flops < ridge * each.traffic_bytes)
    return f"{percent_text(bound_s / total_s)} of the computing time is bound by memory, and the rest by arithmetic"
