"""Pictures, pages and exports of serving runs."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import clustersim
from clustersim.apps.compare.run_directories import load_result
from clustersim.apps.plot.plots import draw_plot, report_page
from clustersim.apps.run.page import served_subject_of
from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.cli.export import export
from clustersim.errors import ScenarioError
from clustersim.report.plots.canvas import title_of
from clustersim.report.plots.kinds import SERVED_PLOTS
from clustersim.report.plots.serving_plots import throughput_latency
from tests.unit.report.plots.pictures import is_empty, outside, overlapping

CHAT = "serve-llama3-70b-chat"
FEW = ("requests.count=500", "requests.warmup=0")


@pytest.mark.parametrize("kind", SERVED_PLOTS)
def test_a_picture_shows_its_finding_without_labels_on_each_other(kind: str) -> None:
    ax = draw_plot(kind, [CHAT], FEW)

    assert title_of(ax).startswith(f"{CHAT}: ")
    assert not is_empty(ax)
    assert overlapping(ax) == []
    assert outside(ax) == []


def test_a_notebook_shows_tables_and_pictures_of_a_served_run() -> None:
    result = load_result(CHAT, FEW)

    assert isinstance(result, ServingResult)
    assert result._repr_html_().startswith(f"<p><strong>{CHAT}</strong></p>")
    assert dir(result.plot) == sorted(SERVED_PLOTS)
    assert np.asarray(result.plot.throughput_latency().lines[0].get_xdata()).size == 6
    assert result.timeline()["end_s"].max() == pytest.approx(result.metrics.duration_s, rel=0.1)
    assert title_of(result.plot.latency()).startswith(f"{CHAT}: half of the requests")


def test_more_load_is_more_throughput_at_more_latency() -> None:
    ax = draw_plot("throughput_latency", [CHAT], FEW)

    rates, latencies = np.asarray(ax.lines[0].get_xdata()), np.asarray(ax.lines[0].get_ydata())
    assert len(rates) == len({round(rate) for rate in rates}) == 6
    assert list(rates) == sorted(rates)
    assert latencies[-1] > latencies[0]


def test_promises_do_not_hold_where_the_queue_grows_without_end() -> None:
    run = load_result(CHAT, FEW)
    assert isinstance(run, ServingResult)
    kept = replace(served_subject_of(run), load="8 requests/s")
    assert kept.metrics.slo is not None
    assert kept.metrics.slo.met
    more = replace(kept.metrics, overloaded=True, output_tokens_per_s_per_gpu=2 * kept.metrics.output_tokens_per_s_per_gpu)

    title = title_of(throughput_latency([kept, replace(kept, load="32 requests/s", metrics=more)]))

    assert title.endswith("with 32 requests/s, where the queue grows without end; the SLO holds up to 8 requests/s")
    assert "at most" not in title


def test_requests_at_once_have_no_load_to_vary() -> None:
    changes = ("requests={arrival: at_once, count: 10, input_tokens: 100, output_tokens: 10}",)
    with pytest.raises(ScenarioError, match="arrival: at_once has no load to vary"):
        draw_plot("throughput_latency", [CHAT], changes)


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        ("pipeline", CHAT, "'pipeline' shows training, and serve-llama3-70b-chat serves requests"),
        ("latency", "llama3-8b-8xh100", "'latency' shows serving, and llama3-8b-8xh100 trains"),
        ("throughput_latency", "llama3-8b-8xh100", "'throughput_latency' shows serving, and llama3-8b-8xh100 trains"),
    ],
)
def test_a_picture_of_the_other_kind_of_run_is_refused(kind: str, source: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        draw_plot(kind, [source], FEW if source == CHAT else ())


def test_a_page_has_every_section_and_a_directory_the_same_page(tmp_path: Path) -> None:
    page = report_page([CHAT], FEW)
    result = load_result(CHAT, FEW)
    folder = write_run_directory(result, tmp_path)

    kept = (folder / "report.html").read_text(encoding="utf-8")
    for heading in (
        "Latency",
        "Batch and queue",
        "KV cache",
        "Service level objectives (SLO)",
        "Where a step goes",
        "Memory of one GPU",
        "Power and cost",
    ):
        assert heading in page
        assert heading in kept
    assert report_page([str(folder)]) == page
    grown = draw_plot("throughput_latency", [str(folder)])
    assert list(np.asarray(grown.lines[0].get_ydata())) == list(
        np.asarray(draw_plot("throughput_latency", [CHAT], FEW).lines[0].get_ydata())
    )


def test_a_page_of_two_runs_has_them_side_by_side() -> None:
    page = report_page([CHAT, "serve-disaggregated"], FEW)
    for text in ("2 runs side by side", CHAT, "serve-disaggregated"):
        assert text in page


def test_exports_hold_engine_steps_of_all_pools(tmp_path: Path) -> None:
    few = ("requests.count=60", "requests.warmup=0")
    trace = json.loads(gzip.decompress(export("serve-disaggregated", "chrome", str(tmp_path / "t.json.gz"), few).read_bytes()))
    assert {event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"} == {1, 2, 3, 4}
    rows = export("serve-disaggregated", "csv", str(tmp_path / "t.csv"), few).read_text(encoding="utf-8").splitlines()
    assert {row.partition(",")[0] for row in rows[1:]} == {"0", "1", "2", "3"}
    with pytest.raises(ScenarioError, match="a serving run has no operators for it"):
        export("serve-disaggregated", "kineto", str(tmp_path / "k"), few)


def test_a_report_says_of_which_pool_its_parts_are() -> None:
    text = str(clustersim.run("serve-disaggregated", set=FEW))

    for part in (
        "mean over steps of both pools",
        "tokens for each prefill replica",
        "tokens for each decode replica",
        "Memory of one GPU of the prefill pool",
    ):
        assert part in text


def test_a_report_says_how_many_sequences_have_states() -> None:
    asked = {"engine": "sglang", "tp": 4}
    few = {"arrival": "poisson", "rate": "2 /s", "count": 4, "input_tokens": 100, "output_tokens": 4}
    machine = {"node": "dgx-h100", "nodes": 1}
    scenario = {"version": 1, "name": "states", "model": "qwen3-next-80b-a3b", "cluster": machine, "serving": asked, "requests": few}

    result = cast("ServingResult", clustersim.run(scenario))

    n_sequences = result.built.pools[0].rules.max_num_seqs
    assert f"at most {n_sequences:,} sequences in the batch of a rank, set by the states" in str(result)
