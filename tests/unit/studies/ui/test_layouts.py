"""Layouts worth a try."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.errors import ScenarioError
from clustersim.scenario.run import run
from clustersim.studies.ui.layouts import COLUMNS, layout_rows, with_layout
from clustersim.units.quantity import format_quantity

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "seq_length": 2048},
}


def test_layouts_are_scenarios_that_run_as_fast_as_the_table_says() -> None:
    rows = layout_rows(BASE)

    results = [run(with_layout(BASE, row.changes)) for row in rows]
    assert len(rows) > 2
    assert [row.cells[1] for row in rows] == [format_quantity(result.step_time_s, "s", 4) for result in results]
    assert all(len(row.cells) == len(COLUMNS) for row in rows)
    assert all(result.metrics.memory.fits for result in results)
    assert [result.step_time_s for result in results] == sorted(result.step_time_s for result in results)


def test_the_rest_of_a_scenario_stays() -> None:
    document = {
        **BASE,
        "training": {**BASE["training"], "optimizer": "sgd"},
        "strategy": {"tp": 8, "virtual_stages": 2, "overlap_ep": True},
    }

    laid_out: Any = with_layout(document, layout_rows(BASE)[0].changes)

    assert laid_out["training"] == {**document["training"], "micro_batch_size": laid_out["training"]["micro_batch_size"]}
    assert "virtual_stages" not in laid_out["strategy"]
    assert laid_out["strategy"]["overlap_ep"] is True
    assert {key: laid_out[key] for key in ("model", "cluster")} == {key: BASE[key] for key in ("model", "cluster")}


def test_there_is_none_where_nothing_fits() -> None:
    assert layout_rows({**BASE, "model": "llama3.1-405b"}) == ()


def test_files_are_refused_here_too() -> None:
    with pytest.raises(ScenarioError, match="no file is read here"):
        layout_rows({**BASE, "model": "mine.yaml"})
