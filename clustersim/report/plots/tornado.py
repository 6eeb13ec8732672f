"""Effect of each figure on a number: bars to both sides of what it is now, the longest first."""

from __future__ import annotations

from typing import ClassVar, Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, ConfigDict

from clustersim.measure.deciding import standing_text
from clustersim.report import palette
from clustersim.report.facts import figure_text
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, draw_grid, name_rows, new_axes, note, write
from clustersim.units.divisors import listed

_ROW_PX: Final = 46
_MARGINS: Final = Margins(left=330, right=130, top=84, bottom=64)
_ROOM: Final = 0.16
"""Beside the longest bar, for what stands at its end, as a share of the width."""
_LOWER: Final = palette.FORWARD
_HIGHER: Final = palette.EXPOSED


class _PicturePart(BaseModel):
    """Leaves what it does not know to others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)


class VariedDocument(_PicturePart):
    """One figure, as ``what-if --json`` has it."""

    input: str
    low: str
    high: str
    values_at_low: dict[str, float | None]
    values_at_high: dict[str, float | None]
    best_at_low: str | None
    best_at_high: str | None

    def ends(self, case: str) -> tuple[float | None, float | None]:
        """Return the number of a case at both ends; None where it cannot be chosen."""
        return self.values_at_low.get(case), self.values_at_high.get(case)

    def name(self, case: str) -> str:
        """Return the name of the figure, and which case becomes best with it."""
        changes = dict.fromkeys(best or "no case" for best in (self.best_at_low, self.best_at_high) if best != case)
        return f"{self.input}\n{' or '.join(changes)} becomes best" if changes else self.input


class SensitivityDocument(_PicturePart):
    """All figures, the one that moves the number most first."""

    case: str
    value: float
    inputs: list[VariedDocument]


class Tornado(_PicturePart):
    """Part of ``what-if --json`` that a picture needs."""

    scenario: str
    metric: str
    best: str | None = None
    undecided: list[str] = []
    sensitivity: SensitivityDocument

    @property
    def finding(self) -> str:
        """The figure that moves the number of the best case most."""
        found = self.sensitivity
        of = f" of {found.case}" if len(found.inputs[0].values_at_low if found.inputs else ()) > 1 else ""
        moved = [
            (each, abs(high - low))
            for each in found.inputs
            for low, high in [each.ends(found.case)]
            if low is not None and high is not None
        ]
        if not moved or not moved[0][1]:
            return f"{figure_text(self.metric)}{of} does not depend on any of these figures"
        share = 100 * moved[0][1] / abs(found.value)
        return f"{figure_text(self.metric)}{of} depends most on {moved[0][0].input}: {share:.1f} % from end to end"

    @property
    def subtitle(self) -> str:
        """Contents of the picture, and the figures that the choice turns on."""
        found = self.sensitivity
        deciding = [each for each in found.inputs if {each.best_at_low, each.best_at_high} != {found.case}]
        turns = f"; the choice turns on {listed([each.input for each in deciding], 'and')}" if deciding else ""
        return f"{self.scenario}: one figure varied at a time; blue: low, orange: high; the line: as it is{turns}"


def tornado(picture: Tornado, ax: Axes | None = None) -> Axes:
    """Draw a bar for each figure, blue where it is low and orange where it is high, each with its value at the end."""
    found = picture.sensitivity
    height_px = _MARGINS.top + _MARGINS.bottom + _ROW_PX * max(len(found.inputs), 2)
    ax = new_axes(height_px, _MARGINS) if ax is None else ax
    ends = [end for bar in found.inputs for end in bar.ends(found.case) if end is not None]
    least, most = min([found.value, *ends]), max([found.value, *ends])
    room = _ROOM * ((most - least) or abs(found.value) or 1.0)
    ax.set_xlim(least - room, most + room)
    ax.set_ylim(len(found.inputs) - 0.4, -0.6)
    for place, bar in enumerate(found.inputs):
        _draw_bar(ax, bar, bar.ends(found.case), place, found.value)
    ax.axvline(found.value, color=INK, linewidth=1.0, zorder=4)
    name_rows(ax, range(len(found.inputs)), [bar.name(found.case) for bar in found.inputs])
    ax.tick_params(axis="y", labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7))
    ax.ticklabel_format(axis="x", style="plain", useOffset=False)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    draw_grid(ax, "x", 0.7)
    ax.set_xlabel(figure_text(picture.metric), loc="right")
    caption(ax, picture.finding, picture.subtitle)
    note(ax, standing_text(picture.best, picture.undecided) if picture.best and picture.undecided else "", below_px=34)
    return ax


def _draw_bar(ax: Axes, bar: VariedDocument, numbers: tuple[float | None, float | None], place: int, base: float) -> None:
    ends = [
        (end, text, colour) for end, text, colour in zip(numbers, (bar.low, bar.high), (_LOWER, _HIGHER), strict=True) if end is not None
    ]
    # Where both lie on one side, the longer one is drawn first, so that the shorter one is seen.
    ends.sort(key=lambda end: -abs(end[0] - base))
    if ends and all(end == base for end, _, _ in ends):
        write(ax, f"{bar.low} to {bar.high}: no effect", (base, place), (5, 0), color=FAINT_INK)
        return
    right = bool(ends) and ends[0][0] >= base
    for end, text, colour in ends:
        ax.barh(place, end - base, left=base, height=0.62, color=colour, zorder=2)
        # The text of the shorter one stands on the other side, also where its bar does not.
        at = end if (end > base) == right else base
        aside, ha = (5, "left") if right else (-5, "right")
        write(ax, text, (at, place), (aside, 0), ha=ha, color=FAINT_INK if at == base else INK)
        right = not right
