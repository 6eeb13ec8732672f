"""Tables and figures as people read them: aligned text, Markdown, and values in the unit in which their key ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import Final

from clustersim.expressions.measures import measure_of_key
from clustersim.report.facts import holds_memory, memory_text
from clustersim.report.folded import folded, reading_width, table_lines
from clustersim.units.quantity import format_alike, format_quantity

NOTHING: Final = "-"
EQUAL: Final = "="
CLOSE: Final = 5e-5
"""Relative difference that one decimal of a percentage would show as 0.0."""
_TIMES: Final = 9.0
"""Relative difference from which on a percentage is hard to read."""
_TONNE_KG: Final = 1e3
_MARKDOWN: Final = re.compile(r"[\\`|*\[\]]|(?<![^\W_])_|_(?![^\W_])|^>|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""Signs that Markdown reads; an underscore between letters is none, nor is an arrow or a comparison."""
_PERCENT: Final = ("mfu", "hfu")
_UNITS: Final[Mapping[object, str]] = MappingProxyType(
    {
        ((("s", 1),), 1.0): "s",
        ((("B", 1),), 1.0): "B",
        ((("B", 1), ("s", -1)), 1.0): "B/s",
        ((("FLOP", 1), ("s", -1)), 1.0): "FLOP/s",
        ((("USD", 1),), 1.0): "USD",
        ((("J", 1),), 3.6e6): "kWh",
        ((("J", 1), ("s", -1)), 1.0): "W",
        ((("kg", 1),), 1.0): "kg",
    }
)
"""By what a key measures."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A heading, rows of text, and sentences below them."""

    heading: str
    columns: tuple[str, ...] = ()
    """One that begins with ``>`` holds numbers, set to the right."""
    rows: tuple[tuple[str, ...], ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Columns as they are shown."""
        return tuple(name.removeprefix(">") for name in self.columns)

    def shown(self, width: int, room: int | None) -> Iterator[tuple[str, bool]]:
        """Yield an empty line, heading, rows folded to some room, and sentences, each with whether it names columns; no empty table."""
        if self.rows or self.sentences:
            yield from (("", False), *([(folded(self.heading, width), False)] if self.heading else []))
            yield from table_lines(self.columns, self.rows, room) if self.rows else ()
            yield from ((folded(line, width), False) for line in self.sentences)

    @property
    def sides(self) -> list[str]:
        """Sides to which columns are set, as in a format."""
        return [">" if name.startswith(">") else "<" for name in self.columns]

    def markdown(self) -> str:
        """Return the rows as Markdown that shows each cell as it is, in even columns."""
        rows = [[escaped(cell) for cell in row] for row in (self.names, *self.rows)]
        widths = [max(3, *map(len, cells)) for cells in zip(*rows, strict=True)]
        rule = [f"{':' if side == '>' else '-':->{width}}" for side, width in zip(self.sides, widths, strict=True)]
        even = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, self.sides, widths, strict=True)] for row in rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in (even[0], rule, *even[1:]))

    def html(self) -> str:
        """Return heading, rows and sentences as HTML, which notebooks show; empty where there are neither rows nor sentences."""
        sides = ["right" if side == ">" else "left" for side in self.sides]
        rows = [
            "".join(f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for cell, side in zip(row, sides, strict=True))
            for tag, row in (("th", self.names), *(("td", row) for row in self.rows))
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows[1:])
        table = f"<table><thead><tr>{rows[0]}</tr></thead><tbody>{body}</tbody></table>" if self.rows else ""
        told = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        shown = table + (f"<ul>{told}</ul>" if told else "")
        return f"<h4>{escape(self.heading)}</h4>{shown}" if self.heading and shown else shown


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is: no cell ends in it, no code begins, and no HTML is read from it."""
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.splitlines()) or text)


def shown(key: str, value: float | None) -> str:
    """Return a figure as people read it, by the unit in which its key ends.

    Examples
    --------
    >>> shown("step_time_s", 0.0123), shown("mfu", 0.4321), shown("tokens_per_s", 1234567.0), shown("peak_flops_per_s", 989e12)
    ('12.3 ms', '43.2 %', '1,234,567', '989 TFLOP/s')
    """
    if value is None:
        return NOTHING
    measure = measure_of_key(key)
    unit = _UNITS.get((measure.powers, measure.scale))
    if unit == "kg" and value >= _TONNE_KG:
        return f"{value / _TONNE_KG:,.0f} t" if value >= _TONNE_KG * 1e3 else f"{value / _TONNE_KG:.4g} t"
    if unit == "B" and holds_memory(key):
        return memory_text(value)
    if unit is not None:
        return format_quantity(value, unit, 4)
    if key in _PERCENT or key.endswith("_fraction"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"


def shown_alike(key: str, values: Sequence[float | None]) -> list[str]:
    """Return figures of one column as people read them, times and bytes that are moved in the unit of the largest.

    Examples
    --------
    >>> shown_alike("step_time_s", [0.9, 1.25, None])
    ['0.9 s', '1.25 s', '-']
    """
    measure = measure_of_key(key)
    unit = _UNITS.get((measure.powers, measure.scale))
    if unit == "USD" and all(value is None or 1.0 <= value < _TONNE_KG for value in values):
        return [NOTHING if value is None else f"{value:.2f} USD" for value in values]
    if unit not in ("s", "B") or holds_memory(key):
        return [shown(key, value) for value in values]
    texts = iter(format_alike([value for value in values if value is not None], unit, 4))
    return [NOTHING if value is None else next(texts) for value in values]


def short(key: str, value: float | None) -> str:
    """Return a figure with three digits, in the unit in which its key ends."""
    return shown(key, three_digits(value))


def three_digits(value: float | None) -> float | None:
    """Return a figure rounded to three digits.

    Examples
    --------
    >>> three_digits(1234.0)
    1230.0
    """
    return None if value is None else float(f"{value:.3g}")


def signed(fraction: float) -> str:
    """Return a relative difference as a percentage with its sign, from ten times on as times."""
    if fraction >= _TIMES:
        return f"{1 + fraction:,.1f} times"
    return EQUAL if abs(fraction) < CLOSE else f"{100 * fraction:+.1f} %"


class TextAnswer:
    """An answer as it shows itself: a finding, sentences that belong to it, and tables with sentences of theirs."""

    __slots__ = ()

    def headline(self) -> str:
        """Return the answer in one sentence."""
        raise NotImplementedError

    def lines(self) -> Sequence[str]:
        """Return what follows from it, in sentences."""
        return ()

    def tables(self) -> Sequence[TextTable]:
        """Return rows and sentences below their headings."""
        return ()

    def to_dict(self) -> Mapping[str, object]:
        """Return the answer as a document, in SI units."""
        raise NotImplementedError

    def notes(self) -> Sequence[str]:
        """Return cautions, and what was assumed, which commands write to stderr."""
        return ()

    def __repr__(self) -> str:
        """Return the answer in one line; all of it is in ``print(answer)`` and ``answer.to_dict()``."""
        return f"<{type(self).__name__}: {self.headline()}>"

    def __str__(self) -> str:
        """Return the answer as text, folded to the width at which it is read."""
        width, notes = reading_width(), TextTable("", sentences=tuple(self.notes()))
        return "\n".join(line for line, _ in (*self.shown(width, width), *notes.shown(width, width)))

    def shown(self, width: int, room: int | None) -> Iterator[tuple[str, bool]]:
        """Yield all but notes in lines, each with whether it names columns; the finding and rows are folded to some room, if any."""
        yield self.headline() if room is None else folded(self.headline(), room), False
        yield from ((folded(line, width), False) for line in self.lines())
        for table in self.tables():
            yield from table.shown(width, room)

    def _repr_html_(self) -> str:
        """Return the same as notebooks show it."""
        return html_answer(self.headline(), self.lines(), (*self.tables(), TextTable("", sentences=tuple(self.notes()))))


def markdown_answer(title: str, opening: Iterable[str], tables: Iterable[TextTable]) -> str:
    """Return paragraphs, and tables with their sentences, as a Markdown document; equal contents give equal text."""
    blocks = [f"# {escaped(title)}", *map(escaped, opening)]
    for table in tables:
        blocks += [f"## {table.heading}"] if table.heading and (table.rows or table.sentences) else []
        blocks += [table.markdown()] if table.rows else []
        blocks += ["\n".join(f"- {escaped(line)}" for line in table.sentences)] if table.sentences else []
    return "\n\n".join(blocks) + "\n"


def html_answer(finding: str, lines: Iterable[str], tables: Iterable[TextTable]) -> str:
    """Return a finding, sentences, and tables with theirs, as HTML, which notebooks show."""
    said = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return f"<p><strong>{escape(finding)}</strong></p>{said}{''.join(table.html() for table in tables)}"
