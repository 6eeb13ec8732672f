"""Records of a job are replayed as they were, without stragglers, and with other durations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from clustersim.apps.records.recorded_answer import RecordedAnswer, answered_records
from clustersim.apps.records.records_file import COLUMNS
from clustersim.cli.app import main
from clustersim.errors import EXIT_BAD_INPUT, ScenarioError

Row = tuple[int, int, int, int, str, float, float, int]
SEND_S = 0.01


def pipeline(forward_s: Sequence[float] = (1.0, 3.0), *, step: int = 0, wait_s: float = 0.5, n: int = 3) -> list[Row]:
    """Return two stages that pass ``n`` micro-batches on; the first begins late, and each receive waits from when its stage is free."""
    rows: list[Row] = []
    first_s, second_s = wait_s, 0.0
    for number in range(n):
        done_s = first_s + forward_s[0]
        rows.append((step, 0, 0, 0, "forward-compute", first_s, forward_s[0], number))
        arrived_s = max(done_s, second_s) + SEND_S
        rows.append((step, 0, 0, 0, "forward-send", done_s, arrived_s - done_s, number))
        rows.append((step, 1, 0, 1, "forward-recv", second_s, arrived_s - second_s, number))
        rows.append((step, 1, 0, 1, "forward-compute", arrived_s, forward_s[1], number))
        first_s, second_s = arrived_s, arrived_s + forward_s[1]
    return rows


def write(path: Path, rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    lines = [",".join(columns), *(",".join(map(str, row[: len(columns)])) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def answer(tmp_path: Path, rows: Sequence[Row], *cases: str) -> RecordedAnswer:
    return answered_records([write(tmp_path / "records.csv", rows)], cases)


def test_a_step_is_replayed_without_the_delay_of_its_launch(tmp_path: Path) -> None:
    found = answer(tmp_path, pipeline())

    assert found.recorded_s == pytest.approx([0.5 + 1.0 + 3 * (3.0 + SEND_S)])
    assert found.replayed.step_times_s == pytest.approx([1.0 + 3 * (3.0 + SEND_S)], abs=1e-9)


def test_without_stragglers_each_computation_takes_the_mean_of_its_kind(tmp_path: Path) -> None:
    found = answer(tmp_path, pipeline((1.0, 3.0)))

    # Both stages compute 2 s: the closed form of a pipeline of two stages and three micro-batches.
    assert found.even.step_times_s == pytest.approx([2.0 + 3 * (2.0 + SEND_S)], abs=1e-9)


def test_one_slow_step_counts_in_the_mean_of_all(tmp_path: Path) -> None:
    found = answer(tmp_path, [*pipeline((2.0, 2.0)), *pipeline((2.0, 4.0), step=1)])

    assert found.steps == (0, 1)
    assert found.even.step_times_s == pytest.approx([2.5 + 3 * (2.5 + SEND_S)] * 2, abs=1e-9)


def test_cases_change_times_and_make_parts_even(tmp_path: Path) -> None:
    found = answer(tmp_path, pipeline(), "fast:communication=0", "slow:forward-compute=2", "one:even=stage 1,communication=0")

    fast, slow, one = (each.step_time_s for each in found.asked)
    assert (fast, slow, one) == pytest.approx((10.0, 20.0 + 3 * SEND_S, 7.0), abs=1e-9)
    assert "fast" in str(found)
    assert "fast" in found._repr_html_()


def test_a_collective_begins_when_its_last_rank_is_there(tmp_path: Path) -> None:
    rows: list[Row] = []
    for rank, computing_s in enumerate((1.0, 4.0)):
        rows.append((0, rank, rank, 0, "backward-compute", 0.0, computing_s, 0))
        rows.append((0, rank, rank, 0, "grads-reduce-scatter", computing_s, 4.2 - computing_s, 0))

    found = answer(tmp_path, rows)

    assert found.replayed.step_time_s == pytest.approx(4.2, abs=1e-9)
    assert found.even.step_time_s == pytest.approx(2.5 + 0.2, abs=1e-9)


def test_operations_side_by_side_do_not_wait_for_each_other(tmp_path: Path) -> None:
    rows: list[Row] = [(0, 0, 0, 0, "backward-compute", 0.0, 3.0, 0), (0, 0, 0, 0, "grads-reduce-scatter", 1.0, 1.0, 0)]

    assert answer(tmp_path, rows).replayed.step_time_s == pytest.approx(3.0, abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no records; give a row for each operation"),
        ([row for row in pipeline() if row[4] != "forward-recv"], "step 0, rank 0: forward-send 0 has 0 other ends, and needs one"),
        ([*pipeline(), *pipeline(step=1, n=2)], "step 1 has 6 operations that are not those of step 0; give whole steps"),
        ([(0, 0, 0, 0, "forward-compte", 0.0, 1.0, 0)], "record 1: 'forward-compte' is no known operation; did you mean 'forward-compute'"),
        ([(0, 0, 0, 0, "forward-compute", 0.0, -1.0, 0)], "record 1: '-1.0' is no duration"),
        ([(0, 0, 0, 0, "forward-compute", float("nan"), 1.0, 0)], "record 1: 'nan' is no time in seconds"),
    ],
)
def test_broken_records_are_refused(tmp_path: Path, rows: list[Row], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        answer(tmp_path, rows)


def test_a_missing_column_and_a_file_that_is_no_parquet_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    broken = tmp_path / "records.parquet"
    broken.write_text("no parquet", encoding="utf-8")

    with pytest.raises(ScenarioError, match="lacks the column 'seq_id'"):
        answered_records([write(tmp_path / "records.csv", pipeline(), COLUMNS[:-1])])
    (tmp_path / "torn.csv").write_text(",".join(COLUMNS) + "\n0,0,0\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"torn.csv:2: has more or fewer values than the header"):
        answered_records([str(tmp_path / "torn.csv")])
    with pytest.raises(ScenarioError, match="is not Parquet"):
        answered_records([str(broken)])


def test_parquet_without_duckdb_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    (tmp_path / "records.parquet").write_bytes(b"PAR1")

    with pytest.raises(ScenarioError, match="is read by DuckDB, which is not installed; pip install"):
        answered_records([str(tmp_path / "records.parquet")])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("x:comunication=0.5", "records have no 'comunication'; did you mean 'communication'"),
        ("x:even=stage 7", "'stage 7' is no part of the job"),
        ("x:communication=fast", "'fast' is no factor; give a factor on its time"),
    ],
)
def test_a_case_of_what_is_not_there_is_refused(tmp_path: Path, case: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        answer(tmp_path, pipeline(), case)


def test_the_command_prints_a_table_or_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = write(tmp_path / "records.csv", pipeline())

    assert main(["what-if", records, "--case", "fast:communication=0"]) == 0
    assert capsys.readouterr().out.startswith("A step of 2 ranks takes 10.53 s recorded (one step), 10.03 s replayed, and 8.03 s without")
    assert main(["what-if", records, "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["cases"]][:2] == ["as recorded", "no stragglers"]
    assert main(["what-if", records, "--metric", "mfu"]) == EXIT_BAD_INPUT
