"""Pictures before they are drawn: measured against predicted times, and figures of a few runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final, Literal

from clustersim.units.quantity import format_quantity

Ticks = tuple[tuple[float, str], ...]
"""Positions and labels."""

SHORT_DECADES: Final = 2.5
"""An axis over fewer of them has three ticks in each."""
LONG_DECADES: Final = 4.5
"""One over more has a tick at each prefix of a unit."""
ROUND_OFF: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Measured and predicted values of one kind of rows."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows that are shown together."""

    title: str
    groups: tuple[Points, ...]
    ring: tuple[float, float]
    """Point with a ring around it."""
    remark: str
    """Words in the lower right corner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels with a finding above them."""

    finding: str
    subtitle: str
    ticks: Ticks
    """Ticks of both axes."""
    panels: tuple[Panel, ...]
    band_fraction: float
    """Half width of the band around the diagonal, as a share of the value."""


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


Unit = Literal["s", "B", "GiB", "%", ""]
"""Unit of an axis; percent for fractions, GiB for bytes of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure of one case, point by point; None where there is none."""

    label: str
    colour: int
    """Number of the case, which has one colour in all panels."""
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    """The values as people read them."""
    doubtful: tuple[bool, ...]
    """Whether a value is of a plan that does not fit in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPanel:
    """One figure in all cases, from zero on."""

    label: str
    unit: Unit
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels with a finding above them; lines where the points are numbers, and bars where they are names."""

    name: str
    """Name of the file."""
    finding: str
    subtitle: str
    axis: str
    """Label of the axis of the points."""
    points: tuple[str, ...]
    places: tuple[float, ...] | None
    """Positions of the points on an axis of doublings; None where they are names."""
    panels: tuple[ChartPanel, ...]
