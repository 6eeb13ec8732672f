"""Figures of a few runs side by side, before they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from clustersim.report.facts import figure_text
from clustersim.units.divisors import listed

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


class _PicturePart(BaseModel):
    """Leaves what it does not know to others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)


class VariedFigure(_PicturePart):
    """Effect of one figure on all cases, as ``what-if --json`` has it."""

    input: str
    low: str
    high: str
    values_at_low: dict[str, float | None]
    """Number of each case where the figure is low; None where it may not be chosen."""
    values_at_high: dict[str, float | None]
    best_at_low: str | None
    best_at_high: str | None

    def ends(self, case: str) -> tuple[float | None, float | None]:
        """Return the number of a case at both ends; None where it cannot be chosen."""
        return self.values_at_low.get(case), self.values_at_high.get(case)

    def swing(self, case: str) -> float:
        """Return how far the number of a case moves; infinite where it cannot be chosen at one end."""
        low, high = self.ends(case)
        return inf if low is None or high is None else abs(high - low)

    def name(self, case: str) -> str:
        """Return the name of the figure, and which case becomes best with it."""
        changes = dict.fromkeys(best or "no case" for best in (self.best_at_low, self.best_at_high) if best != case)
        return f"{self.input}\n{' or '.join(changes)} becomes best" if changes else self.input


class Sensitivity(_PicturePart):
    """All figures, the one that moves the number most first."""

    case: str
    """The best case, whose number is meant."""
    value: float
    inputs: list[VariedFigure]

    @property
    def deciding(self) -> list[VariedFigure]:
        """Figures that change which case is the best."""
        return [each for each in self.inputs if {each.best_at_low, each.best_at_high} != {self.case}]


class Tornado(_PicturePart):
    """Part of ``what-if --json`` that a picture needs."""

    scenario: str
    metric: str
    best: str | None = None
    undecided: list[str] = []
    sensitivity: Sensitivity

    @property
    def finding(self) -> str:
        """The figure that moves the number of the best case most."""
        found = self.sensitivity
        of = f" of {found.case}" if len(found.inputs[0].values_at_low if found.inputs else ()) > 1 else ""
        moved = next((each for each in found.inputs if isfinite(each.swing(found.case))), None)
        if moved is None or not moved.swing(found.case):
            return f"{figure_text(self.metric)}{of} does not depend on any of these figures"
        share = 100 * moved.swing(found.case) / abs(found.value)
        return f"{figure_text(self.metric)}{of} depends most on {moved.input}: {share:.1f} % from end to end"

    @property
    def subtitle(self) -> str:
        """Contents of the picture, and the figures that the choice turns on."""
        deciding = self.sensitivity.deciding
        turns = f"; the choice turns on {listed([each.input for each in deciding], 'and')}" if deciding else ""
        return f"{self.scenario}: one figure varied at a time; blue: low, orange: high; the line: as it is{turns}"
