"""A page as one HTML file."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

from clustersim.errors import ScenarioError
from clustersim.report.page.content import InteractiveChart, Page

LARGEST_BYTES: Final = 6_000_000
"""Maximum bytes of a page with everything in it, small enough for mail."""
_TEMPLATE: Final = "page.html.j2"


def render(page: Page) -> str:
    """Return a page as self-contained HTML: no script, style, font or picture from elsewhere.

    Raises
    ------
    ScenarioError
        When it has pictures that can be zoomed, and the library that draws them is not installed.
    """
    # Templates are of no use before a page is asked for.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("clustersim.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    library = plotly_library() if page.has_charts else ""
    return environment.get_template(_TEMPLATE).render(page=page, library=library, chart_text=_chart_text) + "\n"


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
