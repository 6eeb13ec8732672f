"""Figures of a few runs side by side, before they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
