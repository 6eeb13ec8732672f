"""Content of a page: sections of sentences, tables, pictures and text to copy."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Cell = str | tuple[str, float]
"""Text, or text with the number that it is sorted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Rows that a reader can sort by any column."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture that stands still."""

    title: str
    """Its finding, which is also read out where it cannot be seen."""
    data: bytes
    kind: str
    """``png`` or ``svg``."""

    @property
    def source(self) -> str:
        """Return the picture as an address that holds all of it."""
        mime = "image/svg+xml" if self.kind == "svg" else "image/png"
        return f"data:{mime};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveChart:
    """A picture that can be zoomed: data and layout for plotly."""

    name: str
    title: str
    """Read out where it cannot be seen."""
    data: Sequence[Mapping[str, object]]
    layout: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineFigure:
    """One number that people look for first."""

    name: str
    value: str
    note: str = ""
    """Such as the interval that it is expected in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """One part of a page."""

    name: str
    """Name of the link to it."""
    heading: str
    figures: tuple[HeadlineFigure, ...] = ()
    paragraphs: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """A list."""
    images: tuple[Image, ...] = ()
    charts: tuple[InteractiveChart, ...] = ()
    tables: tuple[PageTable, ...] = ()
    text: str = ""
    """To be copied as it is."""
    text_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page."""

    title: str
    finding: str
    sections: tuple[PageSection, ...] = field(default=())

    @property
    def has_charts(self) -> bool:
        """Whether any picture can be zoomed."""
        return any(section.charts for section in self.sections)
