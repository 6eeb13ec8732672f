"""Cases, the number by which they are judged, and what makes one of them the best."""

from __future__ import annotations

import pytest

import clustersim
from clustersim.apps.study.point import Point, PointOutcome, ResultRow
from clustersim.apps.study.what_if_cases import parse_case
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import make_what_if

WIDE = "wide:strategy.tp=2"


def ok(name: str = "", **figures: float | bool) -> ResultRow:
    return ResultRow(point=Point(number=1, name=name, values={}), outcome=PointOutcome(status="ok", figures=figures))


def test_a_case_has_a_name_and_some_changes_which_a_comma_inside_a_value_does_not_end() -> None:
    case = parse_case("x:strategy.placement=[tp, dp, pp, cp, ep],cluster.stragglers=[{ranks: '0,1', slowdown: 2}],model=a,b")
    assert case.values == {
        "strategy.placement": ["tp", "dp", "pp", "cp", "ep"],
        "cluster.stragglers": [{"ranks": "0,1", "slowdown": 2}],
        "model": "a,b",
    }
    assert parse_case("a.b-1: strategy.tp = 2 , strategy.data_parallel.bucket=25 MB") == Point(
        number=0, name="a.b-1", values={"strategy.tp": 2, "strategy.data_parallel.bucket": "25 MB"}
    )


@pytest.mark.parametrize("text", ["", "x", "x:", ":a=1", "x:1", "a b:c=1", "x:a"])
def test_what_is_no_case_is_refused_and_so_is_the_base(text: str) -> None:
    with pytest.raises(ScenarioError, match="'base' is the scenario itself; choose another name"):
        parse_case("base:strategy.tp=2")
    with pytest.raises(ScenarioError, match="is not name:key=value,key=value"):
        parse_case(text)


def test_of_rates_more_is_better_and_of_all_else_less() -> None:
    for metric, higher in (("tokens_per_s", True), ("mfu", True), ("step_time_s", False), ("tokens_per_s / gpus", False)):
        assert make_what_if(WIDE, metric=metric).objective.higher_is_better is higher


def test_the_best_case_is_the_first_of_the_best() -> None:
    fast, short = (make_what_if(WIDE, metric=metric) for metric in ("tokens_per_s", "step_time_s"))
    numbers = {"base": 1.0, "wide": 2.0, "other": 2.0}
    rows = [*(ok(name, tokens_per_s=number, step_time_s=number) for name, number in numbers.items()), ok("none")]

    assert (fast.best(rows), short.best(rows)) == ("wide", "base")
    assert fast.best([ok("base")]) is None


def test_a_case_may_be_chosen_if_it_runs_and_meets_every_condition() -> None:
    objective = make_what_if(WIDE, where=["memory_fraction <= 90 %", "mfu > 0.1"]).objective
    large = PointOutcome(status="infeasible", reason="too large", figures={"tokens_per_s": 1.0})
    misfit = ResultRow(point=Point(number=1, values={}), outcome=large)

    assert objective.judged(ok(tokens_per_s=5.0, memory_fraction=0.5, mfu=0.2)) == 5.0
    assert objective.refusal(ok(tokens_per_s=5.0, memory_fraction=0.95, mfu=0.2)) == "memory_fraction <= 90 % is false"
    assert objective.refusal(ok(tokens_per_s=5.0, memory_fraction=0.5)) == "'mfu > 0.1' has no value"
    assert objective.refusal(ok(memory_fraction=0.5, mfu=0.2)) == "'tokens_per_s' has no value"
    assert objective.refusal(misfit) == "too large"
    assert objective.judged(misfit) is None


@pytest.mark.parametrize(
    ("cases", "metric", "where", "message"),
    [
        ([WIDE, WIDE], "mfu", [], "two cases are named 'wide'"),
        (["x:strategy.ttp=1"], "mfu", [], "unknown field 'ttp'"),
        ([WIDE], "mffu", [], "there is no metric 'mffu'"),
        ([WIDE], "cost.step.usd", [], "'cost.step.usd' has no value without 'cost'"),
        ([WIDE], "mfu", ["mffu > 1"], "there is no metric 'mffu'"),
        ([WIDE], "mfu", ["goodput.goodput_fraction > 0.9"], "'goodput.goodput_fraction' has no value without 'reliability'"),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(cases: list[str], metric: str, where: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        make_what_if(*cases, metric=metric, where=where)

    assert caught.value.message == message


def test_a_key_without_a_value_is_left_out_of_a_case() -> None:
    question = make_what_if("without:training.precision=null")
    written = [question.base.any_scenario(case.values).document.data["training"] for case in question.cases]

    assert written == [{"global_batch_size": 64, "precision": "bf16"}, {"global_batch_size": 64}]


def test_models_without_sequences_are_ranked_by_samples() -> None:
    answer = clustersim.what_if("resnet50-ddp-dgx1", ["twice:training.global_batch_size=4096"])

    assert answer.question.objective.quantity.text == "samples_per_s"
