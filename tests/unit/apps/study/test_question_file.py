"""Reading questions: what they hold, and mistakes with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.study.question_file import question_names, read_question
from clustersim.errors import ScenarioError
from tests.unit.apps.study.sample import written


def test_runs_are_cases_times_points_without_those_left_out(tmp_path: Path) -> None:
    question = read_question(written(tmp_path))

    assert question.cells == (("plain", "4"), ("plain", "8"), ("sharded", "8"))
    assert question.changes("sharded", "4") == {"strategy.zero_stage": 3, "cluster.accelerators_per_node": 4}


def test_what_a_point_changes_stands_above_what_its_case_does(tmp_path: Path) -> None:
    path = written(tmp_path, ("sharded: {set: {strategy.zero_stage: 3}}", "sharded: {set: {cluster.accelerators_per_node: 2}}"))

    assert read_question(path).changes("sharded", "4") == {"cluster.accelerators_per_node": 4}


def test_a_name_is_its_own_label(tmp_path: Path) -> None:
    question = read_question(written(tmp_path, ("sharded:", "in_shards:"), ("sharded.", "in_shards.")))

    assert question.case_label("plain") == "plain copies"
    assert question.case_label("in_shards") == "in shards"
    assert question.point_label("4") == "4"


def test_all_shipped_questions_can_be_read() -> None:
    names = question_names()

    assert len(names) == 12
    assert [read_question(name).spec.name for name in names] == list(names)


@pytest.mark.parametrize("name", question_names())
def test_a_shipped_question_has_claims_that_are_sentences(name: str) -> None:
    spec = read_question(name).spec

    assert spec.question.endswith("?")
    assert len(spec.claims) >= 3
    assert all(claim.says.endswith(".") and claim.found.endswith(".") for claim in spec.claims)


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
