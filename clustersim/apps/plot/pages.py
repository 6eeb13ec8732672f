"""Pages of one run, of several runs side by side, and of a table of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.apps.compare.run_directories import load_result
from clustersim.apps.compare.side_by_side import run_of, side_by_side
from clustersim.apps.compare.side_by_side_text import tables, verdicts
from clustersim.apps.explain.explanation import measured_changes
from clustersim.apps.plot.plots import are_tables, read_points, subjects_of
from clustersim.apps.run.page import draw_images, draw_served, image_of, page_of, served_page_of, served_subject_of
from clustersim.apps.run.result import Result
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.errors import Place, ScenarioError
from clustersim.report.page.content import Cell, Image, Page, PageSection, PageTable, has_plotly, render

if TYPE_CHECKING:
    import pandas


MOST_RUNS: Final = 12
MOST_POINTS: Final = 2000
"""Rows of a table on a page."""


def report_page(sources: Sequence[str], overrides: Sequence[str] = (), *, seed: int = 0, zooms: bool | None = None) -> str:
    """Return a page as HTML: of one run, of several side by side, or of the points of a sweep.

    Parameters
    ----------
    sources
        Run directories, scenario files or shipped names; or one CSV or Parquet file with a row for each point.
    overrides
        ``key=value`` texts for scenarios.
    zooms
        Whether readers can zoom into the timeline; if None, where the extra ``html`` is installed.

    Raises
    ------
    ScenarioError
        When a source cannot be used.
    """
    if any(are_tables([source]) for source in sources):
        if len(sources) > 1:
            raise ScenarioError("a page shows one table, or runs", hint="name the table alone")
        return render(_points_page(sources[0], read_points("report", sources)))
    if len(sources) > MOST_RUNS:
        raise ScenarioError(f"a page does not show {len(sources)} runs", hint=f"name at most {MOST_RUNS}")
    results = [load_result(source, overrides, seed=seed) for source in sources]
    if len(results) == 1:
        if isinstance(results[0], ServingResult):
            return served_page_of(results[0])
        measured = measured_changes(sources[0], overrides, results[0])
        return page_of(results[0], zooms=has_plotly() if zooms is None else zooms, changes=(*measured.changes, *measured.remarks))
    return render(_comparison_page(sources, results))


def _comparison_page(sources: Sequence[str], results: Sequence[Result | ServingResult]) -> Page:
    compared = side_by_side([run_of(result, source) for source, result in zip(sources, results, strict=True)])
    subjects = subjects_of([result for result in results if isinstance(result, Result)])
    served = [served_subject_of(result) for result in results if isinstance(result, ServingResult)]
    found = verdicts(compared)
    images = draw_images(subjects, ("breakdown", "pareto")) if subjects else draw_served(served, ("throughput_latency",))
    sections = [PageSection(name="summary", heading="Summary", lines=tuple(found), images=tuple(images.values()))]
    for place, table in enumerate(tables(compared)):
        shown = PageTable(caption=table.heading, columns=table.columns, rows=table.rows)
        sections.append(PageSection(name=f"table-{place}", heading=table.heading, tables=(shown,)))
    for place, subject in enumerate(subjects):
        pictures = draw_images([subject], ("pipeline", "memory"))
        sections.append(PageSection(name=f"run-{place}", heading=subject.label, images=tuple(pictures.values())))
    for place, each in enumerate(served):
        pictures = draw_served([each], ("latency", "timeline"))
        sections.append(PageSection(name=f"served-{place}", heading=each.label, images=tuple(pictures.values())))
    return Page(title=f"{len(results)} runs side by side", finding=found[0] if found else "", sections=tuple(sections))


def _points_page(source: str, frame: pandas.DataFrame) -> Page:
    from clustersim.report.plots.canvas import style
    from clustersim.report.plots.heatmap import sweep_heatmap

    if frame.empty:
        raise ScenarioError("has no points", place=Place(file=source))
    images: tuple[Image, ...] = ()
    with style(), suppress(ScenarioError):  # one key alone, or no figures: the table has to do
        images = (image_of(sweep_heatmap(frame), svg=True),)
    finding = images[0].title if images else f"{len(frame):,} points"
    rows = tuple(tuple(_cell(value) for value in row) for row in frame.head(MOST_POINTS).itertuples(index=False, name=None))
    left_out = f", the first {MOST_POINTS:,} of {len(frame):,}" if len(frame) > MOST_POINTS else ""
    table = PageTable(caption=f"All points{left_out}", columns=tuple(str(name) for name in frame.columns), rows=rows)
    sections = (
        PageSection(name="summary", heading="Summary", paragraphs=(f"{len(frame):,} points of {Path(source).name}.",), images=images),
        PageSection(name="points", heading="Points", tables=(table,)),
    )
    return Page(title=f"Sweep {Path(source).stem}", finding=finding, sections=sections)


def _cell(value: object) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    # What has no figure stands behind all that have one.
    return (f"{value:.6g}", float(value)) if math.isfinite(value) else ("", 1e308)
