"""Checks of a scenario: conditions over the names of its result."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clustersim.config.checks import CheckResult, evaluate_checks, metric_names, metric_values, parse_check, parse_checks, wanted_by
from clustersim.errors import Place, ScenarioError
from clustersim.measure.error_bars import ErrorBar
from tests.golden.reference import reference_metrics, reference_timeline

LINE = Place(file="x.yaml", line=7, column=5, text="  - 'mfu > 0 and mfuu > 1'")


def test_a_result_says_what_was_asked_what_was_found_and_whether_it_holds() -> None:
    checks = (parse_check("mfu >= 0.4"), parse_check("step_time_s < 1 s or memory.fits"))

    results = evaluate_checks(checks, {"mfu": 0.3, "step_time_s": 2.0, "memory.fits": True})

    assert results == (
        CheckResult(check="mfu >= 0.4", value=0.3, values={"mfu": 0.3}, holds=False),
        CheckResult(check="step_time_s < 1 s or memory.fits", value=None, values={"step_time_s": 2.0, "memory.fits": True}, holds=True),
    )
    assert [result.found() for result in results] == ["mfu is 30.0 %", "step_time_s is 2 s, memory.fits is true"]
    assert [result.sentence() for result in results] == [
        "mfu >= 0.4 is false (30.0 %)",
        "step_time_s < 1 s or memory.fits holds (step_time_s is 2 s, memory.fits is true)",
    ]
    (fits,) = evaluate_checks([parse_check("memory.fits")], {"memory.fits": True})
    assert fits.sentence() == "memory.fits holds"


def test_a_value_that_json_does_not_know_is_left_out() -> None:
    result = evaluate_checks((parse_check("mfu / bubble_fraction > 1"),), {"mfu": 0.3, "bubble_fraction": 0.0})[0]

    assert (result.value, result.holds) == (None, True)


def test_a_mistake_is_marked_inside_the_text() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_checks(["mfu > 0 and mfuu > 1"], {}, [LINE])

    assert str(caught.value) == (
        "x.yaml:7:18: checks.0: there is no metric 'mfuu'; did you mean 'mfu'?\n    - 'mfu > 0 and mfuu > 1'\n                   ^"
    )


def test_a_text_that_is_folded_over_lines_is_marked_at_its_start() -> None:
    place = replace(LINE, text="  - >-")

    with pytest.raises(ScenarioError) as caught:
        parse_checks(["mfuu > 1"], {}, [place])

    assert caught.value.place == place


def test_a_metric_that_needs_a_key_says_which() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_checks(["time_to_train_s < 30 days"], {"training.tokens": False}, [LINE])

    assert caught.value.message == "'time_to_train_s' has no value without 'training.tokens'"
    assert len(parse_checks(["time_to_train_s < 30 days"], {"training.tokens": True}, [LINE])) == 1


@pytest.mark.parametrize(
    ("metric", "keys"),
    [
        ("mfu", []),
        ("cost.step.usd", ["cost"]),
        ("cost.training.usd", ["training.tokens", "cost"]),
        ("goodput.time_to_train.mean_s", ["training.tokens", "reliability"]),
        ("goodput.goodput_fraction", ["reliability"]),
    ],
)
def test_sections_and_budget_are_wanted_before_anything_runs(metric: str, keys: list[str]) -> None:
    assert [key for key, _ in wanted_by(metric)] == keys
    for key in keys:
        with pytest.raises(ScenarioError, match=f"'{re.escape(metric)}' has no value without '{re.escape(key)}'"):
            parse_checks([f"{metric} > 0"], {other: other != key for other in keys}, [LINE])


def test_a_metric_without_a_value_in_this_run_is_an_error() -> None:
    with pytest.raises(ScenarioError, match=r"'steps\.p95_s' has no value in this run") as caught:
        evaluate_checks((parse_check("mfu > 0"), parse_check("steps.p95_s < 1 s")), {"mfu": 0.3})

    assert caught.value.field == "checks.1"


def test_names_are_those_of_the_result_and_lists_are_none() -> None:
    names = metric_names()

    assert {"mfu", "memory.peak_bytes", "breakdown_s.exposed_communication.tp", "parallelism.tp", "steps.staleness.mean"} <= set(names)
    assert not [name for name in names if name.startswith(("links", "flags", "memory.by_stage", "schema_version"))]
    assert [name for name, flag in names.items() if flag] == [
        "memory.fits",
        "engine.folded",
        "cost.owned",
        "goodput.checkpoint.asynchronous",
        "goodput.checkpoint.lost_with_node",
    ]
    assert "scenario" not in names


def test_every_name_without_a_condition_has_a_value_in_a_plain_run() -> None:
    values = metric_values(reference_metrics(reference_timeline()), 1.0, {})
    lacking = {name.partition(".")[0] for name in metric_names() if name not in values and not wanted_by(name)}

    # What only some scenarios have: several steps, other jobs, experts. Bounds and error bars are added to the metrics later.
    assert lacking <= {"steps", "step_time_alone_s", "experts", "bounds", "error_bar"}
    assert set(values) <= set(metric_names())


def test_memory_fraction_is_the_peak_over_the_capacity() -> None:
    metrics = reference_metrics(reference_timeline())
    memory = replace(metrics.memory, peak_bytes=60e9, capacity_bytes=80e9)

    assert metric_values(replace(metrics, memory=memory), None, {})["memory_fraction"] == 0.75


def test_the_time_to_train_has_no_value_without_a_budget() -> None:
    assert "time_to_train_s" not in metric_values(reference_metrics(reference_timeline()), None, {})


def test_a_check_that_the_interval_of_the_step_leaves_open_says_so() -> None:
    bar = ErrorBar(machine="", least_fraction=0.9, most_fraction=1.3, ratio_most_fraction=1.1)
    checks = tuple(map(parse_check, ("cost.training.gpu_hours < 40M", "cost.training.gpu_hours < 50M", "gpus < 9")))

    found = evaluate_checks(checks, {"cost.training.gpu_hours": 32e6, "gpus": 8}, bar)

    assert [(each.holds, each.decided) for each in found] == [(True, False), (True, True), (True, True)]
    assert found[0].sentence().endswith("not decided)")
