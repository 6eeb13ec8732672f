"""Bounds of the kernels: the arithmetic, the memory, or the wires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from clustersim.measure.utilisation import used_links
from clustersim.report import palette
from clustersim.report.facts import gpus_text, percent_text
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, key, new_axes, paper, size_px, write
from clustersim.report.subject import DataSheetPeaks, KernelGroup, Subject
from clustersim.units.quantity import format_quantity

HEIGHT_PX: Final = 660
MOST_POINTS: Final = 16
"""Groups of kernels, those that take longest."""

_MARGINS: Final = Margins(left=130, right=300, top=84, bottom=86)
_LINE_PX: Final = 18.0
_STEP: Final = 1.6
"""Ratio of the places of two kernels without matrix products."""
_LONG: Final = 200.0
"""Ratio of the ends of an axis from which on only powers of ten have ticks."""
MOST_PLAIN: Final = 6
"""Names of kernels without products that are written."""
_BOUND: Final = {"bound by memory": palette.HIDDEN, "bound by arithmetic": palette.FORWARD}
_WIRES: Final = (("nvlink", "NVLink", "tp"), ("nic", "NIC", "dp"))
"""Tier, its name, and the dimension whose colour it has."""


def roofline(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw the arithmetic rate of kernels over their intensity, under the roofs of arithmetic and memory; the step over its wires too.

    Kernels bound by memory and by arithmetic differ in colour. Kernels without matrix products stand side by side at the left, as
    high as the bytes that they move in a second. The diamonds are the whole step with the bytes that an accelerator sends over each
    kind of wire. References: S. Williams, A. Waterman and D. Patterson, "Roofline", CACM 52(4), 2009.
    """
    subject = subjects[0]
    ceilings, metrics = subject.ceilings, subject.metrics
    assert ceilings is not None
    time_s = fsum(each.seconds for each in subject.kernels) or 1.0
    points = _points(subject.kernels, ceilings)
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xscale("log")
    ax.set_yscale("log")
    wires = _wires(subject)
    rate = metrics.hardware_flops_per_step / metrics.step_time_s / metrics.gpus
    xs = [*(point.place for point in points), *(intensity for _, intensity, _, _ in wires)]
    ys = [*(point.flops_per_s for point in points), rate]
    peak = ceilings.peak_flops_per_s
    ax.set_xlim(min([*xs, 1.0]) / _STEP**2, max([*xs, 4 * peak / ceilings.memory_bytes_per_s]) * 3)
    ax.set_ylim(min([*ys, 0.1 * peak]) / 3, peak * 2.2)
    _draw_roofs(ax, ceilings, wires)
    for point in points:
        size = 40 + 700 * point.seconds / time_s
        # The largest is drawn first, so that it hides none.
        order = 5 - point.seconds / time_s
        ax.scatter([point.place], [point.flops_per_s], s=size, color=point.colour, alpha=0.85, edgecolor="white", zorder=order)
    for at, (name, intensity, colour, _) in enumerate(wires):
        ax.plot([intensity], [rate], marker="D", markersize=9, color=colour, markeredgecolor="white", linestyle="none", zorder=5)
        up, va = (9, "bottom") if at else (-9, "top")
        write(ax, f"step, {name}", (intensity, rate), (0, up), ha="center", va=va, color=colour, bbox=paper(1.0), zorder=4)
    _label(ax, points, time_s)
    _draw_ticks(ax)
    ax.set_xlabel("arithmetic intensity, FLOP for each byte", loc="right")
    ax.set_ylabel("rate of one accelerator, FLOP/s", loc="top")
    title = f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(points, time_s)}"
    plain = "; at the left those without matrix products, as high as their bytes/s" if any(point.plain for point in points) else ""
    caption(
        ax,
        title,
        f"a point for each kind of kernel, as large as its share of the computing time, with the share of its roof that it reaches{plain}",
    )
    key(ax, [(name, colour) for name, colour in _BOUND.items() if any(point.colour == colour for point in points)], below_px=58)
    return ax


@dataclass(frozen=True, slots=True)
class _KernelPoint:
    """Kernels of one name."""

    name: str
    place: float
    """FLOPs for each byte; without matrix products a place left of 1."""
    flops_per_s: float
    """Without matrix products the bytes moved in a second."""
    seconds: float
    roof_fraction: float
    """Reached share of the roof above the point."""
    colour: str
    plain: bool
    """Whether they are without matrix products."""


def _points(kernels: Sequence[KernelGroup], ceilings: DataSheetPeaks) -> list[_KernelPoint]:
    """Return the kernels that take longest, those that take longest first; all others are one point."""
    moving = sorted(
        (each for each in kernels if each.traffic_bytes > 0.0 and each.seconds > 0.0), key=lambda each: (-each.seconds, each.name)
    )
    found: list[_KernelPoint] = []
    for each in moving[:MOST_POINTS]:
        plain = each.flops <= 0.0
        intensity = 1.0 if plain else each.flops / each.traffic_bytes
        flops_per_s = intensity * each.traffic_bytes / each.seconds
        by_memory = intensity * ceilings.memory_bytes_per_s < ceilings.peak_flops_per_s
        roof_flops_per_s = min(ceilings.peak_flops_per_s, intensity * ceilings.memory_bytes_per_s)
        colour = _BOUND["bound by memory" if by_memory else "bound by arithmetic"]
        found.append(_KernelPoint(each.name, intensity, flops_per_s, each.seconds, flops_per_s / roof_flops_per_s, colour, plain))
    plain = sorted((point for point in found if point.plain), key=lambda point: -point.flops_per_s)
    aside = {point.name: _STEP ** (number - len(plain)) for number, point in enumerate(plain)}
    return [replace(point, place=aside.get(point.name, point.place)) for point in found]


def _draw_ticks(ax: Axes) -> None:
    for axis, steps in ((ax.xaxis, (1.0,)), (ax.yaxis, (1.0, 2.0, 5.0))):
        low, high = axis.get_view_interval()
        low = max(low, 1.0)
        powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        values = [step * 10.0**power for power in powers for step in (steps if high < _LONG * low else (1.0,))]
        shown = [value for value in values if low <= value <= high]
        axis.set_major_locator(FixedLocator(shown))
        axis.set_ticklabels([format_quantity(value, "FLOP/s") if axis is ax.yaxis else f"{value:,.10g}" for value in shown])
        axis.set_minor_locator(NullLocator())


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
    left, high = ax.get_xlim()
    low, floor = max(left, 1.0), ax.get_ylim()[0]
    peak = ceilings.peak_flops_per_s
    roofs = [("memory", ceilings.memory_bytes_per_s, INK), *((name, speed, colour) for name, _, colour, speed in wires)]
    ax.plot([left, high], [peak, peak], color=INK, linewidth=1.6)
    ax.plot([left, low], [ceilings.memory_bytes_per_s] * 2, color=INK, linewidth=1.6)
    write(ax, f"peak {format_quantity(peak, 'FLOP/s')}", (left, peak), (6, 4), va="baseline")
    width_px, height_px = size_px(ax)
    angle = float(np.degrees(np.arctan2(height_px / np.log10(ax.get_ylim()[1] / floor), width_px / np.log10(high / left))))
    for name, speed, colour in roofs:
        ridge = peak / speed
        start = max(low, floor / speed)
        if ridge <= start:
            continue
        ax.plot(
            [start, min(ridge, high)], [start * speed, min(ridge, high) * speed], color=colour, linewidth=1.6 if name == "memory" else 1.2
        )
        at = float(np.exp(0.5 * np.log(start) + 0.5 * np.log(min(ridge, high))))
        text = f"{name} {format_quantity(speed, 'B/s')}"
        write(ax, text, (at, at * speed), (-3, 5), rotation=angle, rotation_mode="anchor", color=colour, va="bottom")


def _label(ax: Axes, points: Sequence[_KernelPoint], time_s: float) -> None:
    """Write names beside the picture, in the order of the points, so that no line crosses it."""
    products = sorted((point for point in points if not point.plain), key=lambda point: point.place)
    plain = [point for point in points if point.plain]
    shown = sorted(plain[:MOST_PLAIN], key=lambda point: point.place)
    rest_s = fsum(point.seconds for point in plain[MOST_PLAIN:])
    rest = f"and {len(plain) - len(shown)} more, {percent_text(rest_s / time_s)}" if rest_s else ""
    line = 0
    for heading, some, more in (
        ("from left to right", products, ""),
        ("without matrix products, from left to right", shown, rest),
    ):
        if some:
            rows = [(heading, FAINT_INK), *((_words(point, time_s), point.colour) for point in some), (more, FAINT_INK)]
            for text, colour in rows:
                _write(ax, line, text, colour)
                line += 1


def _words(point: _KernelPoint, time_s: float) -> str:
    roof = "memory" if point.colour == _BOUND["bound by memory"] else "peak"
    return f"{point.name} {percent_text(point.seconds / time_s)}, {100 * point.roof_fraction:.0f} % of {roof}"


def _write(ax: Axes, line: int, text: str, colour: str) -> None:
    width_px, height_px = size_px(ax)
    place = 1.0 + 20.0 / width_px, 1.0 - (line + 0.5) * _LINE_PX / height_px
    is_point = colour != FAINT_INK
    if is_point:
        ax.plot(*place, marker="o", markersize=6, color=colour, transform=ax.transAxes, clip_on=False)
    write(ax, text, place, (8 if is_point else 0, 0), of="axes fraction", color=INK if is_point else FAINT_INK)


def _finding(points: Sequence[_KernelPoint], time_s: float) -> str:
    bound_s = fsum(point.seconds for point in points if point.colour == _BOUND["bound by memory"])
    return f"{percent_text(bound_s / time_s)} of the computing time is bound by memory, {percent_text(1 - bound_s / time_s)} by arithmetic"
