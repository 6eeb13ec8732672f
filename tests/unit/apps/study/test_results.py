"""The table of a sweep."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from clustersim.apps.study import results as module
from clustersim.apps.study.point import Point, PointOutcome, ResultRow, figure_names
from clustersim.apps.study.results import (
    MAIN_METRICS,
    ResultColumns,
    check_format,
    chosen_metrics,
    csv_bytes,
    write_results,
)
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import ErrorBar

COLUMNS = ResultColumns(keys=("strategy.tp", "x", "y"), metrics=("mfu", "memory.fits", "gpus", "time_to_train_s"))
GOOD = ResultRow(
    point=Point(number=1, values={"strategy.tp": 4, "x": 'a, "b"\'c', "y": [1, "z"]}),
    outcome=PointOutcome(
        status="ok",
        scenario_hash="00000001",
        figures={"mfu": 1 / 3, "memory.fits": True, "gpus": 8},
        bar=ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine="0123abcd"),
    ),
)
BAD = ResultRow(
    point=Point(number=2, values={"strategy.tp": 8, "x": "ü", "y": None}),
    outcome=PointOutcome(status="infeasible", reason="strategy.tp: no, it's\nnot"),
)


def test_a_cell_holds_what_reads_back_and_nothing_where_there_is_nothing() -> None:
    first, second = csv.DictReader(io.StringIO(csv_bytes(COLUMNS, [GOOD, BAD]).decode()))

    assert list(first) == [
        "point",
        "strategy.tp",
        "x",
        "y",
        "status",
        "reason",
        "scenario_hash",
        "mfu",
        "memory.fits",
        "gpus",
        "time_to_train_s",
        "error_bar.machine",
        "error_bar.least_fraction",
        "error_bar.most_fraction",
        "error_bar.ratio_most_fraction",
    ]
    assert (first["x"], first["y"], first["memory.fits"], first["gpus"], first["time_to_train_s"]) == (
        'a, "b"\'c',
        '[1, "z"]',
        "true",
        "8",
        "",
    )
    assert float(first["mfu"]) == 1 / 3
    assert (second["status"], second["reason"], second["y"], second["mfu"]) == ("infeasible", "strategy.tp: no, it's\nnot", "", "")


def test_a_record_has_values_as_they_were_written() -> None:
    assert COLUMNS.record(GOOD)["y"] == [1, "z"]
    assert COLUMNS.record(BAD)["mfu"] is None


def test_metrics_are_chosen_by_name() -> None:
    assert chosen_metrics(()) == MAIN_METRICS
    assert set(MAIN_METRICS) <= set(figure_names())
    assert chosen_metrics(("mfu", "gpus", "mfu")) == ("mfu", "gpus")
    assert chosen_metrics(("all",)) == tuple(figure_names())
    with pytest.raises(ScenarioError, match="there is no metric 'mfuu'; did you mean 'mfu'"):
        chosen_metrics(("mfuu",))


def test_a_format_needs_what_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_format("csv") == "csv"
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert check_format("csv") == "csv"
    with pytest.raises(ScenarioError) as caught:
        check_format("parquet")
    assert (caught.value.field, caught.value.hint) == ("--format", "pip install 'clustersim[store]'")


@pytest.mark.parametrize("file_format", ["parquet", "duckdb"])
def test_duckdb_reads_what_was_written(tmp_path: Path, file_format: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path / "it's here"
    folder.mkdir()

    path = write_results(folder, COLUMNS, [GOOD, BAD], file_format)

    assert path == folder / f"results.{file_format}"
    assert sorted(each.name for each in folder.iterdir()) == sorted(["results.csv", path.name])
    source = "points" if file_format == "duckdb" else f"read_parquet('{str(path).replace(chr(39), chr(39) * 2)}')"
    with duckdb.connect(str(path) if file_format == "duckdb" else ":memory:", read_only=file_format == "duckdb") as connection:
        rows = connection.execute(f"SELECT * FROM {source} ORDER BY point").fetchall()
        types = dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})").fetchall())
    assert rows[0] == (1, 4, 'a, "b"\'c', '[1, "z"]', "ok", None, "00000001", 1 / 3, True, 8.0, None, "0123abcd", 0.9, 1.2, 1.1)
    assert rows[1] == (2, 8, "ü", None, "infeasible", "strategy.tp: no, it's\nnot", *[None] * 9)
    assert (types["strategy.tp"], types["x"], types["mfu"], types["memory.fits"], types["time_to_train_s"]) == (
        "BIGINT",
        "VARCHAR",
        "DOUBLE",
        "BOOLEAN",
        "DOUBLE",
    )


def test_a_table_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    for file_format in ("csv", "parquet"):
        with pytest.raises(ScenarioError, match="cannot write"):
            write_results(tmp_path / "missing", COLUMNS, [GOOD], file_format)
