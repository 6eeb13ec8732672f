"""Questions of a sweep, and refusals before any run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.study import sweep_question as module
from clustersim.apps.study.point import PointOutcome, ResultRow
from clustersim.apps.study.results import MAIN_METRICS
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.sweep_question import SweepQuestion, asked_sweep, sweep_of
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from tests.unit.apps.study.factories import SMALL, base_of, make_base, make_question, make_study


def row(question: SweepQuestion, number: int, status: str = "ok", **figures: float | bool) -> ResultRow:
    assert status in {"ok", "unmet", "infeasible", "failed"}
    outcome = PointOutcome(status=status, figures=figures)  # pyright: ignore[reportArgumentType] - one of them, as asserted
    return ResultRow(point=question.points[number - 1], outcome=outcome)


def test_the_fastest_point_is_the_best_unless_somebody_says_otherwise() -> None:
    question = make_question("strategy.tp=1,2,4,8")
    rows = [row(question, 1, tokens_per_s=5.0), row(question, 2, tokens_per_s=7.0), row(question, 3, tokens_per_s=7.0)]

    assert [each.point.number for each in question.objective.ranked(rows)] == [2, 3, 1]
    assert question.columns.metrics == MAIN_METRICS


def test_only_points_that_run_and_meet_all_conditions_are_answers() -> None:
    question = make_question("strategy.tp=1,2,4,8", where=["mfu > 30 %", "strategy.tp <= 4"], sort="mfu * strategy.tp")
    rows = [
        row(question, 1, mfu=0.5),
        row(question, 2, "infeasible", mfu=0.5),
        row(question, 2, "unmet", mfu=0.5),
        row(question, 2, mfu=0.2),
        row(question, 3, mfu=0.4),
        row(question, 4, mfu=0.9),
        row(question, 1),
    ]

    assert [each.point.number for each in question.objective.ranked(rows)] == [1, 3]


def test_a_condition_may_ask_for_what_a_sweep_brings() -> None:
    question = make_question("training.tokens=1T,2T", where=["time_to_train_s < 10 days"])

    assert question.objective.where[0].names == ("time_to_train_s",)


@pytest.mark.parametrize(
    ("wishes", "field", "message"),
    [
        (StudyRequest(where=("mfuu > 1",)), "--where", "there is no metric 'mfuu'"),
        (StudyRequest(where=("mfu",)), "--where", "'mfu' compares nothing"),
        (StudyRequest(where=("step_time_s > 1 GB",)), "--where", "'>' has s on its left side and bytes on its right side"),
        (StudyRequest(where=("time_to_train_s < 3 days",)), "--where", "'time_to_train_s' has no value without 'training.tokens'"),
        (StudyRequest(metric="goodput.goodput_fraction"), "--sort", "'goodput.goodput_fraction' has no value without 'reliability'"),
        (StudyRequest(metric="mfu > 1"), "--sort", "'mfu > 1' is a condition"),
        (StudyRequest(metrics=("engine.wall_s",)), "--metrics", "there is no metric 'engine.wall_s'"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(wishes: StudyRequest, field: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        sweep_of(make_study(replace(wishes, over=("strategy.tp=1,2",))))
    assert (caught.value.field, caught.value.message, caught.value.place) == (field, message, None)

    key = field.removeprefix("--")
    written = json.dumps(wishes.metric or [*wishes.where, *wishes.metrics])
    path = tmp_path / "study.yaml"
    path.write_text(f"scenario: {json.dumps(SMALL)}\ngrid: {{strategy.tp: [1, 2]}}\n{key}: {written}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        asked_sweep(path, StudyRequest())
    assert ((caught.value.field or "").partition(".")[0], caught.value.message) == (key, message)
    assert caught.value.place is not None
    assert caught.value.place.line == 3


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("strategy.ttp=1,2", "strategy.ttp", "unknown field 'ttp'"),
        ("nonsense=1", "nonsense", "unknown field 'nonsense'"),
        ("strategy.tp=1,2,many", "strategy.tp", "'many' is not a whole number"),
        ("strategy.tp=1,0", "strategy.tp", "0 is out of range"),
        ("strategy.schedule=1f1b,gpip", "strategy.schedule", None),
        ("strategy.data_parallel.bucket=25 MB, 3 s", "strategy.data_parallel.bucket", "'3 s' is not a size"),
        ("cluster.nics.bandwidth=100..300 step 100", "cluster.nics.bandwidth", "100 has no unit"),
        ("model.hidden_size=1,2", "model.hidden_size", "model is not a mapping, so nothing below it can be set"),
    ],
)
def test_a_value_that_its_key_can_never_have_is_refused_before_anything_is_run(text: str, field: str, message: str | None) -> None:
    with pytest.raises(ScenarioError) as caught:
        make_question(text, "training.micro_batch_size=1,2")

    assert (caught.value.field, caught.value.place) == (field, Place(file=f"--over {text}"))
    assert message is None or caught.value.message == message


def test_values_that_contradict_each_other_are_no_mistake() -> None:
    assert len(make_question("strategy.tp=3,8", "strategy.pp=1,5").points) == 4
    assert len(make_question("strategy.preset=megatron_lm,gpipe", "strategy.schedule=1f1b,zb_h1").points) == 4


@pytest.mark.parametrize("sections", [{"model": "gpt3000"}, {"strategy": {"pp": 7}}])
def test_a_mistake_that_no_value_mends_is_refused(sections: dict[str, Data]) -> None:
    with pytest.raises(ScenarioError):
        make_question("training.micro_batch_size=1,2", base=base_of(sections))


def test_a_scenario_that_the_values_complete_is_none() -> None:
    base = make_base(model="gpt3000", strategy={"pp": 7})

    assert len(make_question("model=gpt2,gpt2-xl", "strategy.pp=1,2", base=base).points) == 4


def test_of_a_long_axis_only_the_first_values_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(module, "_check_value", lambda base, axis, point: looked.append(point.values[axis.key]))

    make_question("training.global_batch_size=1..5000", "strategy.tp=1,2")

    assert looked[:3] == [1, 2, 3]
    assert len(looked) == 100 + 2


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ScenarioError, match="1,000 x 1,000 = 1,000,000 points are more than 50"):
        make_question("strategy.tp=1..1000", "strategy.pp=1..1000", most=50)
