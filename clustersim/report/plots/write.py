"""Write pictures into files: pictures of a run, one picture, the charts of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from clustersim.errors import ScenarioError
from clustersim.report.pictures import Chart

if TYPE_CHECKING:
    from clustersim.report.plots.canvas import Axes
    from clustersim.report.plots.kinds import Plots


def write_plots(plots: Plots, kinds: Iterable[str], folder: Path) -> None:
    """Write pictures of some kinds into ``folder``, which must exist; equal runs give equal bytes."""
    # matplotlib takes most of a second to import, and a run without plots must not wait for it.
    from clustersim.report.plots.canvas import save, style

    with style():
        for kind in kinds:
            save(getattr(plots, kind)(), folder / f"{kind}.png")


def write_drawn(draw: Callable[[], Axes], path: Path, option: str) -> str:
    """Draw a picture into a PNG or SVG file, and return its finding; equal pictures give equal bytes.

    Parameters
    ----------
    option
        By which the file was named, for messages.

    Raises
    ------
    ScenarioError
        When the file cannot be written.
    """
    from clustersim.report.plots.canvas import save, style, title_of

    with style():
        ax = draw()
        try:
            save(ax, path)
        except OSError as error:
            raise ScenarioError(f"cannot write {path}: {error.strerror or error}", field=option, hint="name another file") from error
    return title_of(ax)


def write_charts(charts: Iterable[Chart], folder: Path) -> None:
    """Write the charts of a study into ``folder``, which must exist, as PNG and SVG; equal charts give equal bytes."""
    from clustersim.report.plots.canvas import save_figure, style
    from clustersim.report.plots.charts import draw_chart

    with style():
        for chart in charts:
            figure = draw_chart(chart)
            for suffix in ("png", "svg"):
                save_figure(figure, folder / f"{chart.name}.{suffix}")
