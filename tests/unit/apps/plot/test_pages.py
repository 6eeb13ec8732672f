"""Pages of runs and of tables."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from clustersim.apps.explain.explanation import measured_changes
from clustersim.apps.plot import plots as pages
from clustersim.apps.plot.plots import report_page
from clustersim.apps.run.result import NOT_MEASURED
from clustersim.apps.run.running import run
from clustersim.errors import ScenarioError
from clustersim.report.facts import interval_line, interval_text
from clustersim.report.page.content import LARGEST_BYTES
from clustersim.units.quantity import format_quantity

pytestmark = pytest.mark.xdist_group("pages")  # some are drawn once

SWEEP = "strategy.tp,strategy.pp,step_time_s,memory.fits,error\n1,1,,False,too large\n1,2,3.5,True,\n2,1,3.0,True,\n2,2,2.5,True,\n"


@cache
def page_of_512() -> str:
    return report_page(["llama3-70b-h100-512"], zooms=False)


def headings(text: str) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", text)


def test_a_page_of_a_run_tells_everything() -> None:
    text = page_of_512()

    assert headings(text) == [
        "Summary", "Where the step goes", "Timeline", "Communication", "Memory", "Links", "What is not certain",
        "Sources of every constant", "Scenario", "Scenario with all defaults",
    ]  # fmt: skip
    assert "Step time is bound by computation" in text


@pytest.mark.slow
def test_a_page_has_the_changes_that_a_run_has_measured() -> None:
    changed = ("strategy.recompute=full",)
    changes = measured_changes("llama3-70b-h100-512", changed, run("llama3-70b-h100-512", set=list(changed))).changes
    text = re.sub(r"</?code>", "", report_page(["llama3-70b-h100-512"], changed, zooms=False))

    assert any("recomputation none" in change for change in changes)
    assert all(f"What would shorten the step: {change}" in text for change in changes)
    assert "would help first" not in text


def test_the_interval_stands_below_the_step_time_and_is_explained() -> None:
    metrics = run("llama3-70b-h100-512").metrics
    step_time, text = format_quantity(metrics.step_time_s, "s", 4), page_of_512()

    assert f'<dt>step time</dt><dd>{step_time}</dd><dd class="note">80 %: {interval_text(metrics)}</dd>' in text
    assert text.count('<dd class="note">') == 1
    assert f"<li>{interval_line(metrics)}</li>" in text


def test_every_source_of_the_hardware_is_on_it() -> None:
    built = run("llama3-70b-h100-512").built
    text = page_of_512()

    node = built.cluster.node
    for part in (node, node.accelerator, node.host, node.nic, built.cluster.fabric.leaf):
        assert part.sources
        for source in part.sources:
            assert source.url.replace("&", "&amp;") in text


@pytest.mark.slow
@pytest.mark.parametrize("zooms", [True, False])
def test_equal_runs_give_equal_pages(zooms: bool) -> None:
    assert report_page(["resnet50-async-servers"], zooms=zooms) == report_page(["resnet50-async-servers"], zooms=zooms)


def test_failures_and_cost_are_on_the_page_where_the_scenario_asks_for_them() -> None:
    text = report_page(["starter"], ["cost.gpu_hour=2.50 USD"], zooms=False)

    assert "Cost and failures" in headings(text)
    assert "Power and cost: rent 2.5 USD per GPU hour" in text


@pytest.mark.slow
def test_the_page_of_the_largest_example_can_be_mailed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "measured_changes", lambda *_: NOT_MEASURED)  # a few lines, from five more replays

    assert len(report_page(["llama3-405b-4d"], zooms=True).encode()) < LARGEST_BYTES


def test_the_points_of_a_sweep_are_on_a_page(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(SWEEP, encoding="utf-8")

    text = report_page([str(file)])

    assert headings(text) == ["Summary", "Points"]
    assert "strategy.tp 2 with strategy.pp 2 is best: step time 2.5 s" in text
    assert '<td class="number" data-sort="3.5">3.5</td>' in text
    assert "too large" in text


def test_a_sweep_of_one_key_has_a_table_and_no_picture(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text("strategy.tp,step_time_s\n1,2.0\n2,1.0\n", encoding="utf-8")

    text = report_page([str(file)])

    assert "<img" not in text
    assert "2 points of sweep.csv." in text


@pytest.mark.parametrize(
    ("content", "message"),
    [("strategy.tp,step_time_s\n", "has no points"), ("", "is not a table")],
)
def test_a_table_without_points_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(content, encoding="utf-8")

    with pytest.raises(ScenarioError, match=message):
        report_page([str(file)])


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["starter"] * 13, "a page does not show 13 runs; name at most 12"),
        (["sweep.csv", "starter"], "a page shows one table, or runs"),
    ],
)
def test_a_table_beside_a_run_and_too_many_runs_are_refused_before_anything_is_simulated(sources: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        report_page(sources)
