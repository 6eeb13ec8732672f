"""Content of a page, and the page as one HTML file."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from clustersim.errors import ScenarioError

Cell = str | tuple[str, float]
"""Text, or text with the number that it is sorted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Rows that a reader can sort by any column."""

    caption: str
    columns: tuple[str, ...]
    """One that begins with ``>`` holds numbers, set to the right."""
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


LARGEST_BYTES: Final = 6_000_000
"""Maximum bytes of a page with everything in it, small enough for mail."""
_TEMPLATE: Final = "page.html.j2"
_SETTING: Final = re.compile(r"(?<![\w-])(-s (?:'[^']*'|[\w.]+='[^']*'|\S*[^\s,;)]))")
"""A setting in a line, which is set as code."""


def render(page: Page) -> str:
    """Return a page as self-contained HTML: no script, style, font or picture from elsewhere."""
    # Templates are of no use before a page is asked for.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("clustersim.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    library = plotly_library() if any(section.charts for section in page.sections) else ""
    return environment.get_template(_TEMPLATE).render(page=page, library=library, chart_text=_chart_text, setting=_SETTING) + "\n"


def has_plotly() -> bool:
    """Return whether pictures can be zoomed: the extra ``html`` is installed."""
    from importlib.util import find_spec

    return find_spec("plotly") is not None


def plotly_library() -> str:
    """Return the library that draws charts in a browser.

    Raises
    ------
    ScenarioError
        When it is not installed.
    """
    if not has_plotly():
        raise ScenarioError("plotly is not installed", hint="pip install 'clustersim[html]', or ask for --static")
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _chart_text(chart: InteractiveChart) -> str:
    """Return data and layout as JSON that can stand inside a script."""
    text = json.dumps({"data": chart.data, "layout": chart.layout}, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c")
