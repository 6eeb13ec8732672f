"""What a study tells its reader: findings, each with a table; pictures; and everything in full, for files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

from clustersim.report.charts import Chart
from clustersim.report.pictures import Picture, Ticks
from clustersim.units.quantity import format_quantity

Cell = str | int | float | None

SHORT_DECADES: Final = 2.5
"""An axis over fewer of them has three ticks in each."""
LONG_DECADES: Final = 4.5
"""One over more has a tick at each prefix of a unit."""
ROUND_OFF: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One finding, and what it was read from."""

    finding: str
    columns: tuple[str, ...]
    """One that begins with ``>`` holds numbers."""
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One file: SI units in the header; a cell that is None stays empty."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows as mappings from the names of their columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A whole study."""

    name: str
    title: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()
    charts: tuple[Chart, ...] = ()


def span_text(values: Sequence[float | None], text: Callable[[float], str], none: str) -> str:
    """Return the least and the largest of some values as text; ``none`` stands for those that do not exist.

    Examples
    --------
    >>> span_text([14, 13, 14], str, "never"), span_text([3, None], str, "never"), span_text([None], str, "never")
    ('13 to 14', '3 or never', 'never')
    >>> span_text([2.0, 30.0], lambda size: f"{size:g} kB", "never")
    '2 to 30 kB'
    """
    there = sorted(value for value in values if value is not None)
    ends = list(dict.fromkeys(text(value) for value in (there[:1] + there[-1:])))
    units = [end.partition(" ")[2] for end in ends]
    if len(ends) == 2 and units[0] == units[1]:
        ends[0] = ends[0].partition(" ")[0]
    words = [" to ".join(ends)] if ends else []
    return " or ".join([*words, none] if len(there) < len(values) else words)


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
