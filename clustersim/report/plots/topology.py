"""The machine as a map: what hangs at what, coloured by how busy the wires between were at most."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.measure.utilisation import used_links
from clustersim.report.facts import TIER_LABELS, gpus_text, percent_text
from clustersim.report.palette import STALL
from clustersim.report.plots.canvas import FAINT_INK, Margins, add_boxes, caption, draw_scale, new_axes, share_colour
from clustersim.trace.timeline import LinkUse
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.report.subject import Subject

HEIGHT_PX: Final = 660
MOST_WIRES: Final = 24
"""Wires drawn for one place."""
LEAST_ROWS: Final = 3
MOST_PLACES: Final = 5
"""Places on one level; of more, those with the busiest wires."""

_MARGINS: Final = Margins(left=40, right=40, top=84, bottom=84)
_LEFT: Final = 0.21
"""Left end of the wires, as a share of the width."""
_ORDER: Final = ("spine", "leaf", "nic", "pcie", "nvlink", "socket", "memory", "storage")
_ENDS: Final = {
    "spine": ("core switches", "spines"),
    "leaf": ("spines", "leaves"),
    "nic": ("leaves", "adapters"),
    "pcie": ("adapters", "accelerators"),
    "nvlink": ("accelerators", "each other"),
    "socket": ("processors", "processors"),
    "memory": ("processors", "host memory"),
    "storage": ("processors", "drives"),
}
"""Ends of the wires of a tier, the outer end first."""
_PLACE: Final = re.compile(r"^(.*?)/")


@dataclass(frozen=True, slots=True)
class _Place:
    """Links of one tier at several equal places."""

    name: str
    n_links: int
    peak: float
    mean: float
    bandwidth_bytes_per_s: float


def topology_map(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw a band for each tier of links in use, from the top of the fabric down to the accelerators.

    In a band stands a box for each set of places that behave alike, coloured by the highest utilisation of its wires.
    """
    subject = subjects[0]
    metrics, step_s = subject.metrics, subject.metrics.step_time_s
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    used = used_links(subject.timeline)
    tiers = [tier for tier in _ORDER if tier in used]
    ax.set_xlim(0, 1)
    n_rows = max(len(tiers), LEAST_ROWS)
    above = (n_rows - len(tiers)) / 2
    ax.set_ylim(n_rows - above + 0.1, -0.05 - above)
    ax.set_axis_off()
    for row in range(len(tiers) + 1 if tiers else 0):
        _draw_ends(ax, row, tiers)
    for row, tier in enumerate(tiers):
        _draw_tier(ax, row, tier, _places(used[tier], step_s))
    if not tiers:
        ax.text(0.5, 0.5, "no link carries anything", transform=ax.transAxes, ha="center", va="center", fontsize=12, color=FAINT_INK)
    draw_scale(ax, 1.0, "highest utilisation of a wire", below_px=20)
    title = f"{metrics.scenario}, {gpus_text(metrics)}: {_finding(used, step_s)}"
    caption(
        ax,
        title,
        "each kind of wire in use, the outermost above; a name stands for all places that behave as it does, wires count both directions",
    )
    return ax


def _places(links: Sequence[LinkUse], step_s: float) -> list[_Place]:
    """Return the places of a tier, those with the busiest wires first; both directions of a wire in one."""
    found: dict[str, list[LinkUse]] = {}
    for link in links:
        match = _PLACE.match(link.name)
        found.setdefault(match.group(1) if match else link.name, []).append(link)
    places = [
        _Place(
            name=name,
            n_links=sum(link.n_links for link in own),
            peak=max(link.peak_utilisation for link in own),
            mean=sum(link.n_links * link.bytes / link.bandwidth_bytes_per_s for link in own) / sum(link.n_links for link in own) / step_s,
            bandwidth_bytes_per_s=max(link.bandwidth_bytes_per_s for link in own),
        )
        for name, own in found.items()
    ]
    return sorted(places, key=lambda place: (-round(place.peak, 9), -round(place.mean, 9)))


def _draw_ends(ax: Axes, row: int, tiers: Sequence[str]) -> None:
    """Draw the bar that the wires above it end at, and those below it begin at; both names where they differ."""
    above = [_ENDS[tiers[row - 1]][1]] if row else []
    below = [_ENDS[tiers[row]][0]] if row < len(tiers) else []
    add_boxes(ax, np.array([[_LEFT, 1.0, row + 0.05, row - 0.02]]), STALL)
    ax.text(_LEFT - 0.008, row + 0.015, "\n".join(dict.fromkeys([*above, *below])), fontsize=9, color=FAINT_INK, ha="right", va="center")


def _draw_tier(ax: Axes, row: int, tier: str, places: Sequence[_Place]) -> None:
    """Draw the wires of a tier, place by place."""
    shown = places[:MOST_PLACES]
    width = (1.0 - _LEFT) / max(len(shown), 1)
    ax.text(0.0, row + 0.44, TIER_LABELS[tier], fontsize=11, fontweight="bold", va="center")
    ax.text(0.0, row + 0.62, f"{format_quantity(shown[0].bandwidth_bytes_per_s, 'B/s')} each", fontsize=9, va="center", color=FAINT_INK)
    for place, each in enumerate(shown):
        middle = _LEFT + (place + 0.5) * width
        half = min(0.1, 0.42 * width)
        wires = np.linspace(middle - half, middle + half, min(each.n_links, MOST_WIRES) + 2)[1:-1]
        thick = 0.35 * half / MOST_WIRES
        boxes = [[at - thick, at + thick, row + 0.98, row + 0.05] for at in wires.tolist()]
        add_boxes(ax, np.array(boxes), share_colour(each.peak))
        count = f"{each.n_links:,} {'wire' if each.n_links == 1 else 'wires'}"
        text = f"{_name(each.name)}, {count}\n{percent_text(each.peak)} at most, {percent_text(each.mean)} mean"
        box = {"facecolor": "white", "edgecolor": share_colour(each.peak), "pad": 3.5, "linewidth": 1.2}
        ax.text(middle, row + 0.52, text, ha="center", va="center", fontsize=8.8, linespacing=1.5, bbox=box)
    if len(places) > len(shown):
        left_out = sum(each.n_links for each in places[MOST_PLACES:])
        ax.text(_LEFT - 0.008, row + 0.78, f"and {left_out:,} wires\nless busy", ha="right", va="center", fontsize=8, color=FAINT_INK)


def _name(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def _finding(used: dict[str, list[LinkUse]], step_s: float) -> str:
    if not used:
        return "no wire is used"
    peaks = {tier: max(link.peak_utilisation for link in links) for tier, links in used.items()}
    busiest = max(peaks, key=lambda tier: peaks[tier])
    mean = max(link.bytes / link.bandwidth_bytes_per_s for link in used[busiest]) / step_s
    return f"{TIER_LABELS[busiest]} is fullest, {percent_text(peaks[busiest])} at most and {percent_text(mean)} over the step"
