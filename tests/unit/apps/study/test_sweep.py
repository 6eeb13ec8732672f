"""A sweep from Python, and what it tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import clustersim
from clustersim.apps.study.point import PointOutcome, ResultRow
from clustersim.apps.study.pools import InlineExecutor, local_pool, usable_cores
from clustersim.apps.study.sweep import SweepResult, default_folder
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import ErrorBar
from tests.unit.apps.study.factories import SMALL, make_base, make_question


def make_result(*outcomes: PointOutcome, where: tuple[str, ...] = (), n_kept: int = 0) -> SweepResult:
    question = make_question(f"strategy.tp=1..{len(outcomes)}", where=where)
    rows = tuple(ResultRow(point=point, outcome=outcome) for point, outcome in zip(question.points, outcomes, strict=True))
    return SweepResult(question=question, rows=rows, n_kept=n_kept)


OK = PointOutcome(status="ok", figures={"tokens_per_s": 1234567.0, "mfu": 0.25, "step_time_s": 0.5})
TOO_LARGE = PointOutcome(status="infeasible", reason="does not fit in memory: 90 GB of 80 GB", figures={"tokens_per_s": 9e9})


def test_a_sweep_from_python_gives_the_best_point_and_a_frame() -> None:
    found = clustersim.sweep(SMALL, ["strategy.tp=1,2,3"], set=["strategy.zero_stage=1"], where=["mfu > 0.001"])

    frame = found.to_frame()
    assert found.best is not None
    assert found.best.point.values == {"strategy.tp": 1}
    assert (found.count("ok"), found.count("infeasible"), found.path) == (2, 1, None)
    assert list(frame["strategy.tp"]) == [1, 2, 3]
    assert frame["step_time_s"][1] == clustersim.run(SMALL, set=["strategy.zero_stage=1", "strategy.tp=2"]).step_time_s


def test_a_frame_has_what_differs_and_all_or_other_columns_on_request() -> None:
    found = clustersim.sweep(SMALL, ["strategy.tp=1,2"], set=["strategy.zero_stage=1"])

    frame = found.to_frame()
    assert list(frame.columns)[:3] == ["point", "strategy.tp", "step_time_s"]
    assert "gpus" not in frame
    assert frame.shape[1] < 15
    assert found.to_frame("all").shape[1] > 100
    assert list(found.to_frame("hfu").columns) == ["point", "strategy.tp", "hfu"]
    with pytest.raises(ScenarioError, match="there is no metric 'mfuu'"):
        found.to_frame("mfuu")


def test_points_that_differ_in_settings_that_follow_the_swept_ones_say_so() -> None:
    of_one, of_two = (" ".join(str(clustersim.sweep(SMALL, [f"strategy.zero_stage={values}"])).split()) for values in ("0,1", "1,3"))

    assert "not said" not in of_one
    assert (
        "Settings left to their defaults differ too; give them to compare the rest alone (point 1: launch_overhead 1.7 (Megatron" in of_two
    )


def test_a_sweep_from_python_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = clustersim.sweep(SMALL, ["strategy.tp=1,2"], out=tmp_path / "out")
    more = clustersim.sweep(SMALL, ["strategy.tp=1,2,4"], out=tmp_path / "out")

    assert (first.n_kept, more.n_kept) == (0, 2)
    assert more.rows[:2] == first.rows
    assert more.path == tmp_path / "out" / "results.csv"


def test_the_same_sweep_has_the_same_folder_and_others_have_others() -> None:
    folder = default_folder(make_question("strategy.tp=1,2"))

    assert folder == default_folder(make_question("strategy.tp=1,2", where=["mfu > 0.5"], metrics=["mfu"]))
    assert folder.parent == Path("runs/sweeps/small")
    assert folder != default_folder(make_question("strategy.tp=1,2,4"))
    assert folder != default_folder(make_question("strategy.tp=1,2", base=make_base(seed=1)))


def test_the_first_line_answers_and_the_second_one_counts() -> None:
    assert make_result(OK, TOO_LARGE, OK).lines() == ("2 ok, 1 infeasible",)
    assert make_result(OK, where=("mfu > 0.5",), n_kept=1).lines() == ("1 ok; 0 meet mfu > 0.5; 1 were kept from before",)
    assert make_result(OK, TOO_LARGE).headline() == "Best of 2 points: strategy.tp=1 (tokens_per_s 1,234,567)"
    assert make_result(TOO_LARGE).headline() == "None of 1 point can run"
    assert make_result(OK, where=("mfu > 0.5", "hfu > 0.1")).headline() == "None of 1 point meets mfu > 0.5 and hfu > 0.1"
    assert make_result(TOO_LARGE, where=("mfu > 0.5",)).headline() == "None of 1 point can run"


def at(rate: float, machine: str) -> PointOutcome:
    bar = ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine=machine)
    return PointOutcome(status="ok", scenario_hash=f"{rate}{machine}", figures={"tokens_per_s": rate}, bar=bar)


def test_points_that_the_best_cannot_be_told_apart_from_are_named() -> None:
    result = make_result(at(100.0, "a"), at(95.0, "a"), at(85.0, "a"), at(85.0, "b"))

    assert result.headline().startswith("First of 4 points: ")
    assert result.headline().endswith("; within the error bars: not decided against point 2 and point 4")
    assert result.to_dict()["undecided"] == [2, 4]
    assert "error bars" not in make_result(at(100.0, "a"), at(85.0, "a"), at(100.0, "a")).headline()


def test_what_does_not_depend_on_time_is_decided() -> None:
    question = make_question("strategy.tp=1..2", sort="memory.peak_bytes")
    outcomes = [replace(at(100.0, "a"), figures={"memory.peak_bytes": size}) for size in (1.0, 1.01)]
    rows = [ResultRow(point=point, outcome=outcome) for point, outcome in zip(question.points, outcomes, strict=True)]

    assert question.objective.undecided(rows) == []


def test_the_table_has_the_best_points_and_only_metrics_that_there_are() -> None:
    table = make_result(TOO_LARGE, OK, OK).table(most=1)

    assert table.columns == ("point", "strategy.tp", ">step_time_s", ">tokens_per_s", ">mfu")
    assert table.rows == (("2", "2", "500 ms", "1,234,567", "25.0 %"),)


def test_reasons_are_told_the_most_frequent_ones_first() -> None:
    others = [PointOutcome(status="failed", reason=f"reason {number}") for number in range(7)]

    lines = make_result(TOO_LARGE, TOO_LARGE, PointOutcome(status="infeasible", reason="tp: no"), *others).reason_lines()

    assert lines[:3] == ["2 points infeasible: does not fit in memory", "1 point infeasible: tp: no", "1 point failed: reason 0"]
    assert lines[-1] == "2 more failed, for 2 other reasons"


def test_the_document_holds_every_point() -> None:
    document = make_result(OK, TOO_LARGE).to_dict()

    assert document["answers"] == [1]
    assert document["counts"] == {"ok": 1, "unmet": 0, "infeasible": 1, "failed": 0}
    points = document["points"]
    assert isinstance(points, list)
    assert [isinstance(point, dict) and point["status"] for point in points] == ["ok", "infeasible"]


def test_one_worker_is_this_process() -> None:
    with local_pool(1) as pool:
        assert isinstance(pool.executor, InlineExecutor)
        assert pool.executor.submit(int, "7").result() == 7
        assert isinstance(pool.executor.submit(int, "x").exception(), ValueError)
    assert usable_cores() >= 1


def test_a_mistake_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        clustersim.sweep(SMALL, ["strategy.tp=x"], out=tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_notebook_shows_the_answer_the_table_and_pictures() -> None:
    found = clustersim.sweep(SMALL, ["strategy.tp=1,2"])

    page = found._repr_html_()

    assert page.startswith(f"<p><strong>{found.headline()}</strong></p><p>2 ok</p><table>")
    assert page.count("<tr>") == 3
    assert dir(found.plot) == ["heatmap", "lines", "pareto"]
    assert found.plot.lines(figure="mfu").get_xlabel() == "strategy.tp"
    with pytest.raises(ScenarioError, match=r"there is no column 'mfuu'; did you mean 'mfu'\?$"):
        found.plot.lines(figure="mfuu")
