"""Checks: parsed and never evaluated as code."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from clustersim.errors import ScenarioError
from clustersim.scenario.checks import UNIT_OF_METRIC, CheckResult, evaluate_checks, metric_values, parse_check
from tests.golden.reference import reference_metrics, reference_timeline


@pytest.mark.parametrize(
    ("text", "metric", "sign", "limit"),
    [
        ("memory_fraction <= 0.92", "memory_fraction", "<=", 0.92),
        ("mfu>=0.4", "mfu", ">=", 0.4),
        ("  tokens_per_s  >  1e6 ", "tokens_per_s", ">", 1e6),
        ("step_time_s < 750 ms", "step_time_s", "<", 0.75),
        ("step_time_s < 2", "step_time_s", "<", 2.0),
        ("time_to_train_s <= 30 days", "time_to_train_s", "<=", 30 * 86400.0),
        ("memory.peak_bytes <= 75 GB", "memory.peak_bytes", "<=", 75e9),
    ],
)
def test_a_check_is_a_metric_an_operator_and_a_limit(text: str, metric: str, sign: str, limit: float) -> None:
    check = parse_check(text)

    assert (check.metric, check.operator, check.limit, check.text) == (metric, sign, limit, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a check"),
        ("mfu", "'mfu' is not a check"),
        ("mfu = 0.4", "'mfu = 0.4' is not a check"),
        ("mfu == 0.4", "'mfu == 0.4' is not a check"),
        ("0.4 <= mfu", "'0.4 <= mfu' is not a check"),
        ("__import__('os').system('true') <= 1", "\"__import__('os').system('true') <= 1\" is not a check"),
        ("mfuu >= 0.4", "there is no metric 'mfuu'"),
        ("mfu >= high", "'high' is not a number"),
        ("mfu >= 40 %", "'40 %' is not a number"),
        ("mfu >= 0.4 and hfu >= 0.5", "'0.4 and hfu >= 0.5' is not a number"),
        ("mfu >= nan", "a check against NaN can never hold"),
        ("step_time_s < 5 GB", "'5 GB' is not a time"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_check(text)

    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("sign", "below", "equal", "above"),
    [("<", True, False, False), ("<=", True, True, False), (">", False, False, True), (">=", False, True, True)],
)
def test_the_operators_mean_what_they_mean_elsewhere(sign: str, below: bool, equal: bool, above: bool) -> None:
    check = parse_check(f"mfu {sign} 0.5")

    assert (check.holds(0.4), check.holds(0.5), check.holds(0.6)) == (below, equal, above)


def test_a_check_against_infinity_is_allowed() -> None:
    assert parse_check("step_time_s < inf").limit == math.inf


def test_every_metric_has_a_value() -> None:
    assert set(metric_values(reference_metrics(reference_timeline()), 1.0)) == set(UNIT_OF_METRIC)


def test_memory_fraction_is_the_peak_over_the_capacity() -> None:
    metrics = reference_metrics(reference_timeline())
    memory = replace(metrics.memory, peak_bytes=60e9, capacity_bytes=80e9)

    assert metric_values(replace(metrics, memory=memory), None)["memory_fraction"] == 0.75


def test_the_time_to_train_has_no_value_without_a_budget() -> None:
    assert "time_to_train_s" not in metric_values(reference_metrics(reference_timeline()), None)


def test_a_result_says_what_was_asked_what_was_found_and_whether_it_holds() -> None:
    checks = (parse_check("mfu >= 0.4"), parse_check("step_time_s < 1 s"))

    assert evaluate_checks(checks, {"mfu": 0.5, "step_time_s": 2.0}) == (
        CheckResult(check="mfu >= 0.4", value=0.5, holds=True),
        CheckResult(check="step_time_s < 1 s", value=2.0, holds=False),
    )
