"""Pictures of studies before they are drawn: panels side by side with the same axes, curves that are labelled where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final, Literal

from clustersim.units.quantity import format_quantity

Line = Literal["solid", "dashed", "dotted", "none"]
Ticks = tuple[tuple[float, str], ...]
"""Positions and what is written there."""
SHORT_DECADES: Final = 2.5
"""An axis over fewer of them has three ticks in each."""
LONG_DECADES: Final = 4.5
"""One over more has a tick at each prefix of a unit."""
ROUND_OFF: Final = 1e-9
Corner = Literal["upper left", "upper right", "lower left", "lower right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points and the line through them."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    line: Line = "solid"
    """``none`` leaves points alone, without a label."""
    strong: bool = False
    """What the others are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A few words about one point, which gets a ring."""

    x: float
    y: float
    text: str = ""
    corner: Corner = "upper left"
    """Where the words stand, as seen from the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of several pictures of the same kind."""

    title: str
    curves: tuple[Curve, ...]
    notes: tuple[Note, ...] = ()
    remark: str = ""
    """In the lower right corner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of all panels; logarithmic."""

    label: str
    """With its unit, unless the ticks have it."""
    ticks: Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels with a finding above them."""

    name: str
    """Of the file."""
    finding: str
    subtitle: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    height_px: int = 480
    label_px: int = 126
    """Room to the right of each panel for the labels of its curves."""
    band_fraction: float | None = None
    """Draws the diagonal, and so much to either side of it; for what ought to be equal."""


def ticks(values: Sequence[float], unit: str) -> Ticks:
    """Return round places on a logarithmic axis over some values, written with a unit.

    Examples
    --------
    >>> ticks([2.0, 30.0], "s")
    ((2.0, '2 s'), (5.0, '5 s'), (10.0, '10 s'), (20.0, '20 s'))
    """
    low, high = min(values), max(values)
    decades = log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < SHORT_DECADES else (1.0,)
    every = 3 if decades > LONG_DECADES else 1
    first = every * (floor(log10(low)) // every)
    places = [step * 10.0**decade for decade in range(first, floor(log10(high)) + 1, every) for step in steps]
    return tuple(
        (place, format_quantity(place, unit, 1)) for place in places if low <= place * (1 + ROUND_OFF) and place <= high * (1 + ROUND_OFF)
    )
