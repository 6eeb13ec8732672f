"""Zoom of charts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clustersim.report.page.interactive_charts import links_chart, timeline_chart
from clustersim.trace.timeline import Span
from clustersim.units.quantity import format_quantity
from tests.golden.reference import reference_timeline

TIMELINE = reference_timeline()


def test_every_rank_has_a_lane_for_each_dimension() -> None:
    chart = timeline_chart(TIMELINE)

    axis = json.loads(json.dumps(chart.layout))["yaxis"]
    assert axis["ticktext"][:3] == ["stage 0 compute", "stage 0 PP", "stage 0 DP"]
    assert len(axis["ticktext"]) == 4 * 3


def test_bars_last_as_long_as_spans() -> None:
    forward = next(each for each in json.loads(json.dumps(timeline_chart(TIMELINE).data)) if each["name"] == "forward")

    lengths = [end - start for start, end in zip(forward["x"][::3], forward["x"][1::3], strict=True)]
    assert lengths == pytest.approx([10.0] * 32, abs=1e-3)
    assert forward["x"][2::3] == [None] * 32


def test_a_bar_tells_of_itself_all_along() -> None:
    hover = json.loads(json.dumps(timeline_chart(TIMELINE).data))[-1]

    places = [x for x, text in zip(hover["x"], hover["text"], strict=True) if text == "forward, micro-batch 0: 10 ms at 0 ms"]
    assert len(places) >= 2
    assert 0.0 < min(places) < max(places) < 10.0


def test_of_too_many_spans_the_first_and_the_last_are_shown_and_the_title_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersim.report.page.interactive_charts.MOST_SPANS", 20)

    chart = timeline_chart(TIMELINE)

    drawn = [x for each in json.loads(json.dumps(chart.data))[:-1] for x in each["x"] if x is not None]
    assert len(drawn) == 2 * 20
    assert max(drawn) == pytest.approx(1e3 * TIMELINE.step_time_s)
    assert f" of {format_quantity(TIMELINE.step_time_s, 's')} are here." in chart.title


def test_a_step_of_seconds_has_an_axis_in_seconds_and_its_recomputation_at_the_beginning_of_a_pass() -> None:
    passes = [Span(rank_class=0, stream="compute", kind="backward", name="B", start_s=1.0, end_s=4.0, micro_batch=0, recompute_s=1.0)]
    timeline = replace(TIMELINE, spans=tuple(passes), step_time_s=5.0)

    chart = json.loads(json.dumps({"data": timeline_chart(timeline).data, "layout": timeline_chart(timeline).layout}))

    drawn = {each.get("name"): each["x"] for each in chart["data"]}
    assert chart["layout"]["xaxis"]["ticksuffix"] == " s"
    assert drawn["backward"] == [1.0, 4.0, None]
    assert drawn["recompute"] == [1.0, 2.0, None]


def test_utilisation_is_in_percent() -> None:
    chart = links_chart(TIMELINE)

    assert links_chart(replace(TIMELINE, links=())) is None
    assert chart is not None
    heat = json.loads(json.dumps(chart.data))[0]
    assert len(heat["z"]) == len(heat["y"])
    assert all(0 <= value <= 100 for row in heat["z"] for value in row)
