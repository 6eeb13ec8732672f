"""Pictures of studies before they are drawn: panels side by side with the same axes, curves that are labelled where they end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Line = Literal["solid", "dashed", "dotted", "none"]
Ticks = tuple[tuple[float, str], ...]
"""Positions and what is written there."""
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
