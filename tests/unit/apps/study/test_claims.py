"""Questions that runs answer in words: reading them, their answers, and verdicts on claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.apps.study.claims import StudyAnswer, answered_question, filled, question_titles, read_question
from clustersim.apps.study.point import ACTIVATIONS, STATES, figure_names, outcome_of
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import written

GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "ask-a-question.md"


def asked(path: Path) -> StudyAnswer:
    return answered_question(read_question(path))


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    return asked(written(tmp_path_factory.mktemp("question")))


def test_values_the_first_true_answer_and_verdicts_are_those_of_the_runs(answer: StudyAnswer) -> None:
    rows = {(row.case, row.point): row.columns for row in answer.rows}
    shards, twice = answer.judged
    ratio = rows["plain", "4"]["step_time_s"] / rows["plain", "8"]["step_time_s"]

    assert [row.status for row in answer.rows] == ["ok", "ok", "ok"]
    assert (answer.values["ratio"], answer.values["part_bytes"]) == (ratio, rows["sharded", "8"]["states_bytes"])
    assert ratio > 1
    assert answer.answer == f"More, {ratio:.3g} times"
    assert (shards.verdict, twice.verdict) == ("right", "wrong")
    assert (twice.condition, twice.found) == ("ratio > 1.99", f"It is {ratio:.3g}.")
    assert len(answer.flags) == len(set(answer.flags)) > 0


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


def test_sums_are_those_of_the_fullest_stage_and_of_all_links() -> None:
    result = run("gpipe")
    stages, figures = result.metrics.memory.by_stage, outcome_of(result).figures

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


def test_runs_are_cases_times_points_without_those_left_out(tmp_path: Path) -> None:
    question = read_question(written(tmp_path))

    assert [point.name for point in question.points] == ["plain.4", "plain.8", "sharded.8"]
    assert question.points[-1].values == {"strategy.zero_stage": 3}


def test_what_a_point_changes_stands_above_what_its_case_does(tmp_path: Path) -> None:
    path = written(tmp_path, ("plain: {label: plain copies}", "plain: {set: {cluster.accelerators_per_node: 2}}"))

    assert read_question(path).points[0].values == {"cluster.accelerators_per_node": 4}


def test_a_name_is_its_own_label(tmp_path: Path) -> None:
    question = read_question(written(tmp_path, ("sharded:", "in_shards:"), ("sharded.", "in_shards.")))

    assert question.case_labels["plain"] == "plain copies"
    assert question.case_labels["in_shards"] == "in shards"
    assert question.point_labels["4"] == "4"


def test_a_shipped_question_can_be_read_and_has_claims_that_are_sentences() -> None:
    assert len(question_titles()) == 12
    for name in question_titles():
        question = read_question(name)
        spec = question.study.spec

        assert question.name == name
        assert (spec.question or "").endswith("?"), name
        assert len(spec.claims) >= 3, name
        assert all(claim.says.endswith(".") and claim.found.endswith(".") for claim in spec.claims), name


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("leave_out: [sharded.4]", "leave_out: [sharded.5]", "small.yaml:17:13: leave_out.0: there is no run 'sharded.5'"),
        (
            "leave_out: [sharded.4]",
            "leave_out: [sharded.4, sharded.4]",
            "leave_out.1: there is no run 'sharded.4'; write case.point, each once",
        ),
        (
            "step_time_s: step_time_s",
            "step_time_s: step_tim_s",
            "columns.step_time_s: there is no metric 'step_tim_s'; did you mean 'step_time_s'?",
        ),
        (
            "states_bytes: memory.states_bytes",
            "states_s: memory.states_bytes",
            "columns.states_s: the name says s, and the expression is bytes",
        ),
        ("ratio: plain.4", "ratio_s: plain.4", "values.ratio_s: the name says s, and the expression is a plain number"),
        ("ratio: plain.4", "ratio: plain.5", "values.ratio: there is no metric 'plain.5.step_time_s'"),
        ("part_bytes: sharded.8", "part_bytes: sharded.4", "values.part_bytes: there is no metric 'sharded.4.states_bytes'"),
        ("when: ratio < 1", "when: ratio", "answer.0.when: 'ratio' compares nothing"),
        ("say: Less", "say: '{rato}'", "answer.0.say: there is no value 'rato'; define it below values"),
        ("{part_bytes} of", "{part} of", "claims.0.found: there is no value 'part'"),
        ("holds: ratio > 1.99", "holds: ratio > 1.99 s", "claims.1.holds: "),
        ("{column: step_time_s,", "{column: time_s,", "picture.panels.0.column: there is no column 'time_s'"),
        ("cases: [plain]", "cases: [plane]", "picture.panels.1.cases: there is no case 'plane'"),
        ("question: Is", "qestion: Is", "unknown field 'qestion'; did you mean 'question'?"),
        ("  plain: {label", "  1plain: {label", "cases"),
    ],
)
def test_a_mistake_is_one_error_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_question(written(tmp_path, (old, new)))

    assert message in str(caught.value)
    assert "small.yaml:" in str(caught.value)


def test_a_scenario_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = written(tmp_path).read_text(encoding="utf-8")
    begin, end = text.index("scenario:"), text.index("cases:")
    (tmp_path / "small.yaml").write_text(f"{text[:begin]}scenario: nowhere\n{text[end:]}", encoding="utf-8")

    with pytest.raises(ScenarioError, match="nowhere"):
        read_question(tmp_path / "small.yaml")


def test_what_is_filled_in_is_not_read_again() -> None:
    assert filled("{a} and {b_s}", {"a": 2.0, "b_s": 3.0}) == "2 and 3 s"
