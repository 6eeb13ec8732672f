"""Answers come from runs: conditions decide, sentences get their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.apps.study.asking import StudyAnswer, answered_question
from clustersim.apps.study.figures import ACTIVATIONS, STATES, figure_names, outcome_with_sums
from clustersim.apps.study.question_file import read_question
from clustersim.errors import ScenarioError
from tests.unit.apps.study.sample import written

GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "ask-a-question.md"


def asked(path: Path) -> StudyAnswer:
    return answered_question(read_question(path))


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    return asked(written(tmp_path_factory.mktemp("question")))


def test_values_are_those_of_the_runs(answer: StudyAnswer) -> None:
    rows = {(row.case, row.point): row.columns for row in answer.rows}

    assert [row.status for row in answer.rows] == ["ok", "ok", "ok"]
    assert answer.values["ratio"] == rows["plain", "4"]["step_time_s"] / rows["plain", "8"]["step_time_s"]
    assert answer.values["part_bytes"] == rows["sharded", "8"]["states_bytes"]


def test_the_first_answer_that_is_true_is_given(answer: StudyAnswer) -> None:
    assert answer.values["ratio"] > 1
    assert answer.answer == f"More, {answer.values['ratio']:.3g} times"


def test_claims_are_judged_by_their_conditions(answer: StudyAnswer) -> None:
    shards, twice = answer.judged

    assert shards.holds
    assert not twice.holds
    assert twice.condition == "ratio > 1.99"
    assert twice.found == f"It is {answer.values['ratio']:.3g}."


def test_what_runs_assume_is_told_once(answer: StudyAnswer) -> None:
    assert len(answer.flags) == len(set(answer.flags)) > 0


def test_the_same_question_has_the_same_answer(answer: StudyAnswer, tmp_path: Path) -> None:
    again = asked(written(tmp_path))

    assert (again.rows, again.values, again.answer, again.judged, again.flags) == (
        answer.rows,
        answer.values,
        answer.answer,
        answer.judged,
        answer.flags,
    )


def test_no_answer_that_is_true_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="none of the answers is true in these runs"):
        asked(written(tmp_path, ("when: ratio > 1,", "when: ratio > 100,")))


def test_a_run_that_cannot_be_made_has_no_figures_and_is_not_asked(tmp_path: Path) -> None:
    path = written(tmp_path, ("'8': {}", "'8': {}\n    '6': {set: {strategy.tp: 7}}"))

    rows = {(row.case, row.point): row for row in asked(path).rows}

    assert rows["plain", "6"].status == "cannot run"
    assert rows["plain", "6"].columns == {}
    assert "7" in rows["plain", "6"].reason


def test_a_sentence_about_a_run_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    path = written(tmp_path, ("{set: {strategy.zero_stage: 3}}", "{set: {strategy.tp: 7}}"))

    with pytest.raises(ScenarioError, match=r"'sharded\.8\.states_bytes' has no value: .*7"):
        asked(path)


def test_a_run_that_is_asked_for_wrongly_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, ("{set: {strategy.zero_stage: 3}}", "{set: {strategy.zero_stag: 3}}"))

    with pytest.raises(ScenarioError) as caught:
        asked(path)

    assert str(caught.value).startswith("small, run sharded.8: strategy.zero_stag: ")
    assert caught.value.hint == "did you mean 'zero_stage'?"


def test_a_plan_that_does_not_fit_keeps_its_figures(tmp_path: Path) -> None:
    path = written(tmp_path, ("label: plain copies", "label: big, set: {model: gpt3-6.7b}"))

    row = asked(path).rows[0]

    assert row.status == "does not fit"
    assert row.columns["states_bytes"] > 32e9


def test_sums_are_those_of_the_fullest_stage_and_of_all_links() -> None:
    result = run("gpipe")
    stages, figures = result.metrics.memory.by_stage, outcome_with_sums(result).figures

    assert figures[STATES] == max(stage.parameters_bytes + stage.gradients_bytes + stage.optimizer_bytes for stage in stages)
    assert figures[ACTIVATIONS] == max(stage.activations_bytes for stage in stages)
    assert figures["links.nvlink_bytes"] == next(use.bytes for use in result.metrics.links if use.tier == "nvlink")
    assert figures["links.leaf_bytes"] == 0
    assert figures.keys() <= figure_names().keys()


def test_the_question_of_the_guide_has_an_answer(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    path = tmp_path / "doubling.yaml"
    path.write_text(example[1], encoding="utf-8")

    assert re.fullmatch(r"(Yes|No), [\d.]+ times", asked(path).answer)
