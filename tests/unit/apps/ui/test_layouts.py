"""Layouts worth a try."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.apps.plan.layout_table import AGAINST_FIRST
from clustersim.apps.run.running import run
from clustersim.apps.ui import layouts
from clustersim.apps.ui.layouts import COLUMNS, layout_rows, with_layout
from clustersim.errors import ScenarioError
from clustersim.measure.deciding import is_shorter
from clustersim.units.quantity import format_quantity

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "seq_length": 2048},
}


def test_layouts_are_scenarios_that_run_as_fast_as_the_table_says() -> None:
    rows = layout_rows(BASE).rows

    results = [run(with_layout(BASE, row.changes)) for row in rows]
    assert len(rows) > 2
    assert [row.cells[1].removesuffix(" *") for row in rows] == [format_quantity(result.step_time_s, "s", 4) for result in results]
    assert all(len(row.cells) == len(COLUMNS) for row in rows)
    # As it is the scenario does not fit, and stands below those that do.
    assert [result.metrics.memory.fits for result in results] == [True] * (len(rows) - 1) + [False]
    assert rows[-1].cells[3].endswith("GiB, does not fit")
    assert [result.step_time_s for result in results[:-1]] == sorted(result.step_time_s for result in results[:-1])


def test_a_layout_within_the_error_bars_of_the_first_is_marked() -> None:
    looked = layout_rows(BASE)

    first, *others = [run(with_layout(BASE, row.changes)).metrics for row in looked.rows]
    near = [other.memory.fits and is_shorter(first, other) == "not decided" for other in others]
    assert [row.cells[1].endswith(" *") for row in looked.rows] == [False, *near]
    assert looked.finding.endswith(f"{AGAINST_FIRST}.") == any(near)


def test_the_rest_of_a_scenario_stays() -> None:
    document = {
        **BASE,
        "training": {**BASE["training"], "optimizer": "sgd"},
        "strategy": {"tp": 8, "virtual_stages": 2, "overlap_ep": True},
    }

    laid_out: Any = with_layout(document, layout_rows(BASE).rows[0].changes)

    assert laid_out["training"] == {**document["training"], "micro_batch_size": laid_out["training"]["micro_batch_size"]}
    assert "virtual_stages" not in laid_out["strategy"]
    assert laid_out["strategy"]["overlap_ep"] is True
    assert {key: laid_out[key] for key in ("model", "cluster")} == {key: BASE[key] for key in ("model", "cluster")}


def test_there_is_none_where_nothing_fits() -> None:
    assert layout_rows({**BASE, "model": "llama3.1-405b"}).rows == ()


@pytest.mark.slow
def test_the_present_layout_is_always_there_and_what_is_faster_is_above_it() -> None:
    for strategy in ({"tp": 1, "zero_stage": 3}, {"tp": 8, "pp": 1, "zero_stage": 0, "recompute": "full"}):
        document = {**BASE, "strategy": strategy}
        looked, present = layout_rows(document), run(document)

        mine = [row for row in looked.rows if row.cells[0].startswith("as it is: ")]
        assert [row.cells[1] for row in mine] == [format_quantity(present.step_time_s, "s", 4)]
        assert mine[0].changes == {}
        assert run(with_layout(document, looked.rows[0].changes)).step_time_s <= present.step_time_s


@pytest.mark.slow
def test_others_are_shown_where_none_is_faster() -> None:
    best = with_layout(BASE, layout_rows(BASE).rows[0].changes)

    looked = layout_rows(best)

    assert looked.rows[0].cells[0].startswith("as it is: ")
    assert len(looked.rows) > 1
    assert looked.finding.startswith("The present layout is the fastest of these.")


@pytest.mark.slow
def test_what_was_tried_and_what_is_proven_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_MOST_REPLAYS", 64)

    told = layout_rows(BASE).told

    assert told.startswith("Tried: ")
    assert (
        "1f1b or interleaved_1f1b with ZeRO 1, and ZeRO 3 without stages; micro-batches of 1, 2, 4, cp up to 2, nothing offloaded" in told
    )
    assert told.endswith("by its bound no other one is faster than the first")


def test_a_search_that_is_cut_short_claims_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_MOST_REPLAYS", 1)

    told = layout_rows(BASE).told

    assert "; the step of another one may be " in told


def test_files_are_refused_here_too() -> None:
    with pytest.raises(ScenarioError, match="no file is read here"):
        layout_rows({**BASE, "model": "mine.yaml"})
