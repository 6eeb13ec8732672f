"""Figures of the page."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.apps.ui.page_pictures import breakdown_figure, memory_figure, timeline_figure
from clustersim.report import palette

plotly = pytest.importorskip("plotly.graph_objects", reason="plotly is not installed: figures are not checked against it")


@pytest.fixture(scope="module")
def results() -> tuple[Result, Result]:
    return run("starter"), run("starter", set=["strategy.tp=4", "strategy.pp=2"])


def runs(results: tuple[Result, Result]) -> list[tuple[str, Any]]:
    return [("kept", results[0].metrics), ("now", results[1].metrics)]


def test_the_bars_of_a_breakdown_sum_to_the_step(results) -> None:
    figure: Any = breakdown_figure(runs(results))

    sums = [sum(bar["x"][row] for bar in figure["data"]) for row in range(2)]

    assert sums == pytest.approx([each.step_time_s for each in results], rel=1e-9)
    assert {bar["name"]: bar["marker"]["color"] for bar in figure["data"]}["exposed TP"] == palette.EXPOSED
    assert next(bar["text"] for bar in figure["data"] if bar["name"] == "exposed TP") == ["TP", "TP"]


def test_the_bars_of_memory_sum_to_the_peak_beside_the_capacity(results) -> None:
    figure: Any = memory_figure(runs(results))

    sums = [sum(bar["x"][row] for bar in figure["data"]) for row in range(2)]
    lines = [line["x0"] for line in figure["layout"]["shapes"]]

    assert sums == pytest.approx([each.metrics.memory.peak_bytes / 2**30 for each in results], rel=1e-9)
    assert lines == [each.metrics.memory.capacity_bytes / 2**30 for each in results]
    assert figure["layout"]["xaxis"]["range"][1] > max(*sums, *lines)


def test_plotly_takes_all_of_them(results) -> None:
    timeline, said = timeline_figure(results[1].spans)

    assert said.startswith("What ranks do over the step.")
    for figure in (timeline, breakdown_figure(runs(results)), memory_figure(runs(results)[:1])):
        assert plotly.Figure(figure).layout.height > 100
