"""Figures of the page."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.apps.ui.page_contents import breakdown_bars, memory_bars, timeline_figure
from clustersim.report import palette

plotly = pytest.importorskip("plotly.graph_objects", reason="plotly is not installed: figures are not checked against it")


@pytest.fixture(scope="module")
def results() -> tuple[Result, Result]:
    return run("starter"), run("starter", set=["strategy.tp=4", "strategy.pp=2"])


def runs(results: tuple[Result, Result]) -> list[tuple[str, Any]]:
    return [("kept", results[0].metrics), ("now", results[1].metrics)]


def cells_of(picture: Any) -> list[list[Any]]:
    """Return the parts of each bar, without limits."""
    bars = [each.children for each in picture.children if getattr(each, "className", "") == "bar"]
    return [[cell for cell in bar if cell.className != "limit"] for bar in bars]


def width_of(cell: Any) -> float:
    return float(cell.style["width"].removesuffix("%"))


def test_the_bars_of_a_breakdown_are_as_long_as_their_steps(results) -> None:
    bars = cells_of(breakdown_bars(runs(results)))

    sums = [sum(map(width_of, bar)) for bar in bars]
    assert max(sums) == pytest.approx(100.0, abs=1e-2)
    assert sums[0] / sums[1] == pytest.approx(results[0].step_time_s / results[1].step_time_s, rel=1e-4)
    tp = next(cell for cell in bars[1] if cell.title.startswith("exposed TP: "))
    assert tp.style["background"] == palette.EXPOSED
    assert width_of(tp) == pytest.approx(
        100.0 * results[1].metrics.breakdown_s.exposed_communication.tp / max(each.step_time_s for each in results), rel=1e-3
    )


def test_the_bars_of_memory_end_at_the_peak_beside_the_capacity(results) -> None:
    (bar,) = cells_of(memory_bars(runs(results)[:1]))

    memory = results[0].metrics.memory
    assert sum(map(width_of, bar)) == pytest.approx(100.0 * memory.peak_bytes / memory.capacity_bytes, rel=1e-4)


def test_plotly_takes_the_timeline(results) -> None:
    timeline, said = timeline_figure(results[1].spans)

    assert said.startswith("Activity of ranks over the step.")
    assert plotly.Figure(timeline).layout.height > 100
