"""The machine as a map: the levels of its fabric, and below them one node in full; line width is bandwidth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as MplPath

from clustersim.measure.utilisation import mean_utilisation, used_links
from clustersim.report.facts import TIER_LABELS, gpus_text, percent_text
from clustersim.report.palette import IDLE, STALL, text_colour
from clustersim.report.plots.canvas import (
    FAINT_INK,
    INK,
    Margins,
    add_boxes,
    caption,
    draw_scale,
    new_axes,
    round_share,
    share_colour,
)
from clustersim.report.subject import FabricLevel, NodeWire, PicturedMachine, Subject
from clustersim.trace.timeline import LinkUse
from clustersim.units.quantity import format_quantity

_MARGINS: Final = Margins(left=40, right=40, top=84, bottom=70)
_WIDTH: Final = 1120.0
"""Width of the axes: their units are pixels of the picture."""
_LABELS: Final = 330.0
"""Room at the right, in which text stands."""
_BOX: Final = 34.0
_BAND: Final = 62.0
_ROW: Final = 74.0
_PLATE: Final = 30.0
_WIDEST_BAND: Final = 450.0
_WIDEST_WIRE: Final = 20.0
_WIDEST_ARC: Final = 6.0
_LEAST: Final = 1.2
_UNUSED: Final = "#CFCFCF"
_ROWS: Final = ("nic", "pcie", "gpu")
_ELSEWHERE: Final = ("socket", "memory", "storage")
"""Tiers with their load in words."""
_SERVER: Final = "server"
"""Beginning of the names of links of hosts without accelerators."""
_SERVER_PX: Final = 88.0
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Use:
    """Load of links that are drawn as one."""

    peak: float
    mean: float

    @property
    def text(self) -> str:
        return f"{percent_text(self.mean)} mean, {percent_text(self.peak)} at most"


class _Load:
    """Utilisation of links, by name and by tier."""

    def __init__(self, subject: Subject) -> None:
        self._step_s = subject.metrics.step_time_s
        self.used = used_links(subject.timeline)
        self._by_name: dict[str, list[LinkUse]] = {}
        for link in (link for links in self.used.values() for link in links if not link.name.startswith(_SERVER)):
            for key in _keys(link.name):
                self._by_name.setdefault(key, []).append(link)
        # Mean utilisation at the end of the colour scale.
        uses = [self.of_tier(tier, of) for tier in self.used for of in ("", _SERVER)]
        self.darkest = round_share(max((use.mean for use in uses if use), default=1.0))

    def colour(self, use: _Use | None) -> str:
        """Return the colour of a mean utilisation."""
        return _UNUSED if use is None else share_colour(max(use.mean / self.darkest, 0.12))

    def of_tier(self, tier: str, of: str = "") -> _Use | None:
        """Return the load of the links of a tier, or of those whose name begins so; None of what carries nothing."""
        return self._of([link for link in self.used.get(tier, ()) if link.name.startswith(of)])

    def of_wire(self, wire: NodeWire) -> _Use | None:
        """Return the load of a wire: its own, or that of its class of links."""
        return self._of(next((self._by_name[key] for key in _keys(wire.name) if key in self._by_name), ()))

    def _of(self, links: Sequence[LinkUse]) -> _Use | None:
        if not links:
            return None
        return _Use(max(link.peak_utilisation for link in links), mean_utilisation(links, self._step_s))


def topology_map(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw the switches of the fabric as boxes with their number, and the wires of one node one by one.

    A band between two boxes is as wide as the capacity of all links between them, a wire of the node as its own bandwidth; both have the
    colour of their mean utilisation over the step. Below is a host without accelerators, where such hosts carry anything.
    """
    subject = subjects[0]
    machine = subject.machine
    assert machine is not None
    load = _Load(subject)
    levels = machine.levels if any(level.tier for level in machine.levels) else ()
    fabric_px = (len(levels) * (_BOX + _BAND) - _BAND + (_BAND if levels[-1].sideways else 0.0) + 44.0) if levels else 8.0
    node_px = 48.0 + len(_rows(machine)) * (_PLATE + _ROW) + _PLATE
    served = {tier: use for tier in load.used if (use := load.of_tier(tier, _SERVER))}
    height = fabric_px + node_px + (_SERVER_PX if served else 0.0)
    ax = new_axes(round(height) + _MARGINS.top + _MARGINS.bottom, _MARGINS) if ax is None else ax
    ax.set_xlim(0, _WIDTH)
    ax.set_ylim(height + 2.0, 0)
    ax.set_axis_off()
    if levels:
        _draw_fabric(ax, machine, levels, load)
    _draw_node(ax, machine, load, (fabric_px, fabric_px + node_px))
    if served:
        _draw_server(ax, served, load, fabric_px + node_px + 12.0)
    draw_scale(ax, load.darkest, "mean utilisation over the step of the links in use; pale grey: unused", below_px=16)
    width = "a wire is as wide as its bandwidth, one direction beside the other"
    width = f"a band is as wide as the bandwidth of all its links; in the node {width}" if levels else width
    caption(ax, f"{subject.metrics.scenario}, {gpus_text(subject.metrics)}: {_finding(load, levels)}", width)
    return ax


def _draw_fabric(ax: Axes, machine: PicturedMachine, levels: Sequence[FabricLevel], load: _Load) -> None:
    """Draw the levels, the highest above, with a band upwards from each."""
    widest = max(level.capacity_bytes_per_s for level in levels)
    middle = (_WIDTH - _LABELS) / 2
    top = _BAND if levels[-1].sideways else 0.0
    for place, level in enumerate(reversed(levels)):
        upper = top + place * (_BOX + _BAND)
        _box(ax, (120.0, _WIDTH - _LABELS - 120.0), (upper, upper + _BOX), level.name, bold=True)
        if not level.tier:
            continue
        half = max(level.capacity_bytes_per_s / widest * _WIDEST_BAND, 2.0) / 2
        use = load.of_tier(level.tier)
        add_boxes(ax, np.array([[middle - half, middle + half, upper, upper - _BAND]]), load.colour(use))
        each = format_quantity(level.capacity_bytes_per_s / level.n_links, "B/s")
        total = format_quantity(level.capacity_bytes_per_s, "B/s")
        lines = [f"{_tier_label(level)}: {level.n_links:,} x {each} = {total} each way", "unused" if use is None else use.text]
        if level.tier == "leaf" and not level.sideways:
            lines.append(f"oversubscription of leaves {machine.oversubscription:.3g} : 1")
        _text(ax, upper - _BAND / 2, lines)


def _tier_label(level: FabricLevel) -> str:
    return "switch to switch" if level.sideways else TIER_LABELS[level.tier]


def _draw_frame(ax: Axes, down: tuple[float, float], name: str) -> None:
    """Draw the dashed edge of a host, with its name."""
    size = _WIDTH - _LABELS, down[1] - down[0]
    ax.add_patch(Rectangle((0.0, down[0]), *size, facecolor="#FAFAFA", edgecolor=STALL, linestyle=(0, (4, 3)), linewidth=0.9))
    ax.text(150.0, down[0] + 17.0, name, fontsize=9.5, fontweight="bold", va="center")


def _draw_server(ax: Axes, uses: dict[str, _Use], load: _Load, top: float) -> None:
    """Draw what a host without accelerators uses, a box for each tier."""
    _draw_frame(ax, (top, top + _SERVER_PX - 12.0), "server0, one of the hosts without accelerators")
    room = (_WIDTH - _LABELS - 170.0) / len(uses)
    for place, (tier, use) in enumerate(uses.items()):
        left = 150.0 + place * room
        _box(ax, (left, left + 0.92 * room), (top + 34.0, top + 34.0 + _PLATE), TIER_LABELS[tier], bold=False, colour=load.colour(use))
    _text(ax, top + (_SERVER_PX - 12.0) / 2, [f"{TIER_LABELS[tier]}: {use.text}" for tier, use in uses.items()])


def _draw_node(ax: Axes, machine: PicturedMachine, load: _Load, down: tuple[float, float]) -> None:
    """Draw adapters, PCIe switches with processors, accelerators and what joins these, row by row."""
    top, right = down[0], _WIDTH - _LABELS
    others = f", one of {machine.n_nodes:,}" if machine.n_nodes > 1 else ""
    _draw_frame(ax, down, f"node0{others}: {machine.node}")
    begin, rows = top + 38.0, _rows(machine)
    spots = _spots(machine, begin)
    widest = max(wire.bandwidth_bytes_per_s for wire in machine.wires)
    px_per_byte_per_s = (_WIDEST_ARC if any(_is_arc(wire) for wire in machine.wires) else _WIDEST_WIRE) / widest
    for wire in sorted(machine.wires, key=lambda wire: wire.bandwidth_bytes_per_s):
        _draw_wire(ax, wire, spots, max(px_per_byte_per_s * wire.bandwidth_bytes_per_s, _LEAST), load.colour(load.of_wire(wire)))
    below = begin + len(rows) * (_PLATE + _ROW)
    if any("nvswitch" in wire.head for wire in machine.wires):
        shared = machine.domain_nodes > 1
        named = f"NVSwitch, shared by {machine.domain_nodes} nodes" if shared else "NVSwitch"
        _box(ax, (150.0, right + (12.0 if shared else -20.0)), (below, below + _PLATE), named, bold=False)
    for name, (left, to, upper) in spots.items():
        _box(ax, (left, to), (upper, upper + _PLATE), _label(name, to - left), bold=False)
    for row, (label, wires) in enumerate(rows.values()):
        if wires:
            speeds = sorted({wire.bandwidth_bytes_per_s for wire in wires})
            each = " or ".join(dict.fromkeys(format_quantity(speed, "B/s") for speed in (speeds[0], speeds[-1])))
            uses = [use for use in map(load.of_wire, wires) if use is not None]
            mean = fsum(use.mean for use in uses) / len(wires)
            found = _Use(max(use.peak for use in uses), mean).text if uses else "unused"
            _text(ax, begin + row * (_PLATE + _ROW) + _PLATE + _ROW / 2, [f"{label} in node0: {each} each way", found])
    others_used = [(tier, load.of_tier(tier, "node")) for tier in _ELSEWHERE]
    for place, (tier, use) in enumerate((tier, use) for tier, use in others_used if use is not None and tier != "socket"):
        lower = below - place * (_PLATE + 8.0)
        _box(ax, (8.0, 128.0), (lower, lower + _PLATE), TIER_LABELS[tier], bold=False, colour=load.colour(use))
    _text(ax, below + _PLATE / 2, [f"{TIER_LABELS[tier]}: {use.text}" for tier, use in others_used if use is not None])


def _rows(machine: PicturedMachine) -> dict[str, tuple[str, list[NodeWire]]]:
    """Return for each row of devices what joins it to the next, and the wires that do."""
    wires = machine.wires
    found = {
        "nic": ("NIC", [wire for wire in wires if wire.tier == "nic"]),
        "pcie": ("PCIe", [wire for wire in wires if wire.tier == "pcie" and wire.name.split("/")[1].startswith("gpu")]),
        "gpu": ("NVLink", [wire for wire in wires if wire.tier == "nvlink"]),
    }
    return {kind: row for kind, row in found.items() if kind == "pcie" or row[1]}


def _spots(machine: PicturedMachine, begin: float) -> dict[str, tuple[float, float, float]]:
    """Return left and right edge and upper edge of the plate of each device of a node."""
    names = dict.fromkeys(_end(end) for wire in machine.wires for end in _ends(wire))
    spots: dict[str, tuple[float, float, float]] = {}
    rows = [kind for kind in _ROWS if any(name.startswith(kind) for name in names)]
    for row, kind in enumerate(rows):
        own = [name for name in names if name.startswith(kind)]
        room = (_WIDTH - _LABELS - 170.0) / max(len(own), 1)
        for place, name in enumerate(own):
            left = 150.0 + place * room
            spots[name] = left + 0.08 * room, left + 0.92 * room, begin + row * (_PLATE + _ROW)
    sockets = [name for name in names if name.startswith("socket")]
    for place, name in enumerate(sockets):
        spots[name] = 20.0, 110.0, begin + rows.index("pcie") * (_PLATE + _ROW) + (place - (len(sockets) - 1) / 2) * (_PLATE + 26.0)
    return spots


def _ends(wire: NodeWire) -> tuple[str, str]:
    """Return the ends of a wire; for one to the fabric, the adapter represents the switch."""
    if wire.tier != "nic":
        return wire.tail, wire.head
    adapter = wire.name.split("/")[1]
    return (wire.tail, adapter) if wire.name.endswith("tx") else (adapter, wire.head)


def _end(name: str) -> str:
    return "nvswitch" if name.endswith("nvswitch") else name


def _is_arc(wire: NodeWire) -> bool:
    """Return whether a wire joins two accelerators, without a switch."""
    return all(_end(end).startswith("gpu") for end in _ends(wire))


def _draw_wire(ax: Axes, wire: NodeWire, spots: dict[str, tuple[float, float, float]], width: float, colour: str) -> None:
    """Draw one direction of a wire, some pixels wide, with up and down side by side."""
    tail, head = (_end(end) for end in _ends(wire))
    points = 0.72
    if {tail, head} <= spots.keys():
        (left, right, upper), (to_left, to_right, lower) = sorted((spots[tail], spots[head]), key=lambda spot: spot[2])
        shift = (width / 2 + 0.8) * (1 if tail < head else -1)
        if _is_arc(wire):
            _arc(ax, (spots[tail], spots[head]), shift, width * points, colour)
        elif "socket" in tail + head:
            _draw_to_socket(ax, (tail, head), spots, width * points, colour)
        else:
            ax.plot(
                [(left + right) / 2 + shift, (to_left + to_right) / 2 + shift],
                [upper + _PLATE, lower],
                color=colour,
                linewidth=width * points,
                solid_capstyle="butt",
                zorder=2,
            )
    elif "nvswitch" in (tail, head):
        gpu = spots[tail if head == "nvswitch" else head]
        at = (gpu[0] + gpu[1]) / 2 + (width / 2 + 0.8) * (1 if head == "nvswitch" else -1)
        ends = [gpu[2] + _PLATE, gpu[2] + _PLATE + _ROW]
        ax.plot([at, at], ends, color=colour, linewidth=width * points, solid_capstyle="butt", zorder=2)


def _arc(ax: Axes, spots: tuple[tuple[float, float, float], tuple[float, float, float]], shift: float, width: float, colour: str) -> None:
    """Draw a bow below the accelerators, the deeper the farther they are apart, some pixels outside or inside of its middle line."""
    (left, right, upper), (to_left, to_right, _) = sorted(spots)
    start, end, edge = (left + right) / 2 - shift, (to_left + to_right) / 2 + shift, upper + _PLATE
    # A curve of the second degree reaches half as deep as its middle point.
    depth = 14.0 + shift + (_ROW + _PLATE - 24.0) * (end - start) / (_WIDTH - _LABELS - 170.0)
    path = MplPath([(start, edge), ((start + end) / 2, edge + 2 * depth), (end, edge)], [MplPath.MOVETO, MplPath.CURVE3, MplPath.CURVE3])
    ax.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=width, zorder=1))


def _draw_to_socket(ax: Axes, ends: tuple[str, str], spots: dict[str, tuple[float, float, float]], width: float, colour: str) -> None:
    """Draw a wire between a processor at the left and another or a device of the rows, along the lane above these."""
    one, other = sorted(ends, key=lambda name: not name.startswith("socket"))
    left, right, upper = spots[one]
    to_left, to_right, to_upper = spots[other]
    if other.startswith("socket"):
        line = [(left + right) / 2] * 2, [min(upper, to_upper) + _PLATE, max(upper, to_upper)]
    else:
        number = int(_NUMBER.findall(one)[0])
        lane = to_upper - 8.0 if number == 0 else to_upper + _PLATE + 8.0
        at = (to_left + to_right) / 2 + 0.3 * (to_right - to_left)
        edge = to_upper if number == 0 else to_upper + _PLATE
        line = [right, right + 12.0, right + 12.0, at, at], [upper + _PLATE / 2, upper + _PLATE / 2, lane, lane, edge]
    ax.plot(line[0], line[1], color=colour, linewidth=min(width, 2.0), zorder=1)


def _label(name: str, width: float) -> str:
    kind, number = _NUMBER.sub("", name), "".join(_NUMBER.findall(name))
    word = {"gpu": "GPU", "nic": "NIC", "pcie": "PCIe", "socket": "CPU"}.get(kind, kind)
    return f"{word} {number}" if width > 52.0 else number


def _box(ax: Axes, across: tuple[float, float], down: tuple[float, float], text: str, *, bold: bool, colour: str = IDLE) -> None:
    ax.add_patch(
        Rectangle(
            (across[0], down[0]), across[1] - across[0], down[1] - down[0], facecolor=colour, edgecolor=FAINT_INK, linewidth=0.9, zorder=3
        )
    )
    weight = "bold" if bold else "normal"
    place = sum(across) / 2, sum(down) / 2
    size = 10 if bold else 9.5
    ax.text(*place, text, color=text_colour(colour), ha="center", va="center", fontsize=size, fontweight=weight, zorder=4)


def _text(ax: Axes, at: float, lines: Iterable[str]) -> None:
    ax.text(_WIDTH - _LABELS + 16.0, at, "\n".join(lines), va="center", fontsize=9.5, linespacing=1.45, color=INK)


def _keys(name: str) -> tuple[str, ...]:
    """Return the names under which the load of a link is searched: its own, that of its class, that of both directions.

    Examples
    --------
    >>> _keys("node16/gpu0/pcie/up")
    ('node16/gpu0/pcie/up', 'gpu#/pcie/up', 'gpu#/pcie')
    """
    alike = _NUMBER.sub("#", name.partition("/")[2])
    return name, alike, alike.rpartition("/")[0]


def _finding(load: _Load, levels: Sequence[FabricLevel]) -> str:
    if not load.used:
        return "no link is used"
    labels = {**TIER_LABELS, **{level.tier: _tier_label(level) for level in levels if level.tier}}
    uses = {tier: load.of_tier(tier) for tier in load.used}
    tier, use = max(((tier, use) for tier, use in uses.items() if use is not None), key=lambda each: each[1].mean)
    return f"{labels[tier]} is busiest, {use.text}"
