"""What a question tells: answer, verdicts, tables, a picture, the block of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.study.asking import StudyAnswer, answered_question
from clustersim.apps.study.question_file import read_question
from clustersim.apps.study.question_report import page_block, reported_question
from clustersim.report.charts import Chart
from tests.unit.apps.study.sample import written


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    return answered_question(read_question(written(tmp_path_factory.mktemp("question"))))


def chart_of(answer: StudyAnswer) -> Chart:
    (chart,) = reported_question(answer).charts
    return chart


def test_the_answer_stands_first_above_all_runs(answer: StudyAnswer) -> None:
    (section,) = reported_question(answer).sections

    assert section.finding == answer.answer
    assert section.columns == ("case", "accelerators", ">step time", ">states", ">sent")
    assert [row[:2] for row in section.cells] == [("plain copies", "4"), ("plain copies", "8"), ("sharded", "8")]


def test_each_claim_has_its_verdict_and_assumptions_come_last(answer: StudyAnswer) -> None:
    right, wrong, assumed = reported_question(answer).notes

    assert right.startswith("Introductions say: Shards are smaller. Here that is right.")
    assert wrong.startswith("Introductions say: Twice is twice. Here that is wrong. It is ")
    assert assumed.startswith("This rests on what is assumed: ")


def test_files_hold_runs_and_claims(answer: StudyAnswer) -> None:
    runs, claims = reported_question(answer).tables

    assert runs.header == ("case", "point", "status", "reason", "step_time_s", "states_bytes", "sent_bytes")
    assert [record["step_time_s"] for record in runs.records()] == [row.columns["step_time_s"] for row in answer.rows]
    assert [record["verdict"] for record in claims.records()] == ["right", "wrong"]


def test_numbers_are_places_and_the_finding_is_the_title(answer: StudyAnswer) -> None:
    chart = chart_of(answer)

    assert chart.finding == answer.answer
    assert chart.places == (4.0, 8.0)
    assert [panel.unit for panel in chart.panels] == ["s", "B"]
    assert [[series.label for series in panel.series] for panel in chart.panels] == [["plain copies", "sharded"], ["plain copies"]]
    assert chart.panels[0].series[1].values[0] is None
    assert chart.panels[0].series[1].texts[0] == "not run"


def test_names_are_no_places(tmp_path: Path) -> None:
    path = written(tmp_path, ("'8': {}", "'8': {label: eight}"))

    assert chart_of(answered_question(read_question(path))).places is None


def test_a_plan_that_does_not_fit_is_marked_everywhere(tmp_path: Path) -> None:
    big = answered_question(read_question(written(tmp_path, ("label: plain copies", "label: big, set: {model: gpt3-6.7b}"))))

    section = reported_question(big).sections[0]
    assert [row[-1] for row in section.cells] == ["does not fit", "does not fit", ""]
    first = chart_of(big).panels[0].series[0]
    assert first.doubtful == (True, True)
    assert first.texts[0].endswith(", does not fit")


def test_a_page_has_answer_verdicts_picture_and_table(answer: StudyAnswer) -> None:
    block = page_block(answer)

    assert block.startswith(f"*Is twice as much more?*\n\n**{answer.answer}**\n")
    assert "| Twice is twice. | **wrong** | It is " in block
    assert "```{image} ../_studies/small.png\n:alt: Is twice as much more?\n```" in block
    assert "| case | accelerators | step time | states | sent |\n| --- | --- | ---: | ---: | ---: |\n| plain copies | 4 |" in block
