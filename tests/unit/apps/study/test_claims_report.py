"""Answers to questions as text, tables, a picture, files and the block of a page."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from clustersim.apps.study.claims import StudyAnswer, answered_question, read_question
from clustersim.apps.study.claims_report import chart_of, write_study
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import written


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    return answered_question(read_question(written(tmp_path_factory.mktemp("question"))))


def test_the_answer_stands_first_above_all_runs(answer: StudyAnswer) -> None:
    table = answer.tables()[0]

    assert table.heading == answer.answer
    assert table.columns == ("case", "accelerators", ">step time", ">states", ">sent")
    assert [row[:2] for row in table.rows] == [("plain copies", "4"), ("plain copies", "8"), ("sharded", "8")]


def test_each_claim_has_its_verdict_and_assumptions_come_last(answer: StudyAnswer) -> None:
    right, wrong, assumed = answer.remarks()

    assert right.startswith("Introductions say: Shards are smaller. Here that is right.")
    assert wrong.startswith("Introductions say: Twice is twice. Here that is wrong. It is ")
    assert assumed.startswith("This rests on what is assumed: ")


def test_files_hold_runs_and_claims(answer: StudyAnswer) -> None:
    runs, claims = answer.records().values()

    assert list(runs[0]) == ["case", "point", "status", "reason", "step_time_s", "states_bytes", "sent_bytes"]
    assert [record["step_time_s"] for record in runs] == [row.columns["step_time_s"] for row in answer.rows]
    assert [record["verdict"] for record in claims] == ["right", "wrong"]


def test_numbers_are_places_and_the_finding_is_the_title(answer: StudyAnswer) -> None:
    chart = chart_of(answer)

    assert chart.finding == answer.answer
    assert chart.places == (4.0, 8.0)
    assert [panel.unit for panel in chart.panels] == ["s", "GiB"]
    assert [[series.label for series in panel.series] for panel in chart.panels] == [["plain copies", "sharded"], ["plain copies"]]
    assert chart.panels[0].series[1].values[0] is None
    assert chart.panels[0].series[1].texts[0] == "not run"


def test_names_are_no_places(tmp_path: Path) -> None:
    path = written(tmp_path, ("'8': {}", "'8': {label: eight}"))

    assert chart_of(answered_question(read_question(path))).places is None


def test_a_plan_that_does_not_fit_is_marked_everywhere(tmp_path: Path) -> None:
    big = answered_question(read_question(written(tmp_path, ("label: plain copies", "label: big, set: {model: gpt3-6.7b}"))))

    table = big.tables()[0]
    assert [row[-1] for row in table.rows] == ["does not fit", "does not fit", ""]
    assert big.rows[0].columns["states_bytes"] > 32e9
    first = chart_of(big).panels[0].series[0]
    assert first.doubtful == (True, True)
    assert first.texts[0].endswith(", does not fit")


def test_tables_and_pictures_are_written_with_equal_bytes_over_those_of_an_earlier_run(answer: StudyAnswer, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_study(answer, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    write_study(answer, folder)

    assert sorted(before) == ["claims.csv", "runs.csv", "small.png", "small.svg"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["point"], row["reason"], float(row["step_time_s"])) for row in rows] == [
        (row.point, "", row.columns["step_time_s"]) for row in answer.rows
    ]


def test_a_folder_that_cannot_be_written_is_one_error(answer: StudyAnswer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"cannot write the study into .*file") as caught:
        write_study(answer, tmp_path / "file")

    assert caught.value.hint == "choose another folder with --out"
