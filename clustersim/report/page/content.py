"""Content of a page, and the page as one HTML file."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from math import inf
from typing import Final

from clustersim.errors import ScenarioError
from clustersim.report.text_tables import TextTable


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
    tables: tuple[TextTable, ...] = ()
    """A reader can sort them by any column; one without rows is left out."""
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
_NUMBER: Final = re.compile(r"<?([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?) ?([^\s,;]*)")
_TIMES: Final = {"min": 60.0, "h": 3600.0, "days": 86400.0, "years": 365 * 86400.0}
_PREFIXES: Final = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", 1)} | {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}


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
    return (
        environment.get_template(_TEMPLATE).render(page=page, library=library, chart_text=_chart_text, setting=_SETTING, number=sort_number)
        + "\n"
    )


def sort_number(cell: str) -> float:
    """Return the number that a cell of numbers is sorted by, in units without prefix; cells without one stand behind all others.

    Examples
    --------
    >>> sort_number("1.2 ms"), sort_number("3 min"), sort_number("1,024"), sort_number("2 MiB"), sort_number("12.5 %"), sort_number("-")
    (0.0012, 180.0, 1024.0, 2097152.0, 12.5, inf)
    """
    found = _NUMBER.match(cell)
    if found is None:
        return inf
    number, unit = float(found[1].replace(",", "")), found[2]
    return number * (_TIMES.get(unit) or _PREFIXES.get(unit[:2]) or (_PREFIXES.get(unit[0], 1.0) if len(unit) > 1 else 1.0))


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
