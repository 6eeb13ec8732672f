"""Conditions and quantities: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import math

import pytest

from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import DEEPEST, Condition, parse_condition, parse_quantity_of

METRICS = {
    "mfu": False, "hfu": False, "step_time_s": False, "tokens_per_s": False, "tflops_per_gpu": False, "memory.fits": True,
    "memory.peak_bytes": False, "cost.training.usd": False, "cost.training.energy_kwh": False, "breakdown_s.compute": False,
}  # fmt: skip
VALUES = {
    "mfu": 0.4, "hfu": 0.5, "step_time_s": 2.0, "tokens_per_s": 1e6, "tflops_per_gpu": 400.0, "memory.fits": True,
    "memory.peak_bytes": 7e10, "cost.training.usd": 5e6, "cost.training.energy_kwh": 4e6, "breakdown_s.compute": 1.0,
}  # fmt: skip


def condition(text: str) -> Condition:
    return parse_condition(text, METRICS)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("mfu >= 0.4", True),
        ("mfu > 40 %", False),
        ("0.4 <= mfu", True),
        ("0.3 <= mfu < 0.6", True),
        ("0.3 <= mfu < 0.4", False),
        ("mfu == 0.4 and mfu != 0.5", True),
        ("step_time_s < 1 min", True),
        ("step_time_s < 750 ms", False),
        ("step_time_s < 3", True),
        ("cost.training.usd < 12 MUSD", True),
        ("cost.training.energy_kwh < 5 GWh", True),
        ("cost.training.energy_kwh < 3e6", False),
        ("tflops_per_gpu >= 400 TFLOP/s", True),
        ("tflops_per_gpu >= 400", True),
        ("breakdown_s.compute / step_time_s >= 0.5", True),
        ("breakdown_s.compute / step_time_s >= 50 %", True),
        ("tokens_per_s * step_time_s == 2M", True),
        ("tokens_per_s >= 1M", True),
        ("cost.training.usd < 4M", False),
        ("memory.peak_bytes + 10 GB <= 80 GB", True),
        ("memory.peak_bytes + 11 GB <= 80 GB", False),
        ("80 GB - memory.peak_bytes >= 10e9", True),
        ("memory.peak_bytes / 10 s <= 7 GB/s", True),
        ("memory.fits", True),
        ("not memory.fits", False),
        ("not memory.fits or mfu > 0.3", True),
        ("not (memory.fits or mfu > 0.3)", False),
        ("mfu > 1 and mfu > 1 or hfu < 1", True),
        ("mfu > 1 and (mfu > 1 or hfu < 1)", False),
        ("-mfu < 0 and --mfu > 0", True),
        ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20", True),
        ("8 - 3 - 2 == 3 and 8 / 4 / 2 == 1", True),
        ("mfu / 0 > 1e300", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, holds: bool) -> None:
    assert condition(text).holds(VALUES) is holds


def test_a_condition_knows_the_metrics_it_asks_about() -> None:
    assert condition("hfu > mfu and mfu > 0").names == ("hfu", "mfu")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mfu >= 0.1", 0.4),
        ("cost.training.energy_kwh < 5 GWh", 4e6),
        ("tflops_per_gpu > 1", 400.0),
        ("0.3 < mfu", 0.3),
        ("0.1 < mfu < 1", None),
        ("mfu > 0 and hfu > 0", None),
    ],
)
def test_the_left_side_of_a_single_comparison_can_be_shown(text: str, value: float | None) -> None:
    assert condition(text).value(VALUES) == (None if value is None else pytest.approx(value, rel=1e-12))


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("", 0, "the expression is empty", "write a condition"),
        ("mfu", 0, "'mfu' compares nothing", "write a condition"),
        ("mfuu >= 0.4", 0, "there is no metric 'mfuu'", "did you mean 'mfu'?"),
        ("mfu > 0 and peak_bytes < 1", 12, "there is no metric 'peak_bytes'", "did you mean 'memory.peak_bytes'?"),
        ("cost.trainig.usd < 1", 0, "there is no metric 'cost.trainig.usd'", "did you mean 'cost.training.usd'?"),
        ("xyz < 1", 0, "there is no metric 'xyz'", "use one of mfu, hfu, step_time_s, tokens_per_s, tflops_per_gpu"),
        ("step_time_s < 5 GB", 12, "'<' has s on its left side and bytes on its right side", "write both"),
        ("mfu > 3 GB", 4, "'>' has a plain number on its left side and bytes on its right side", "write both"),
        ("mfu + step_time_s > 3", 4, "'+' has a plain number on its left side and s on its right side", "write both"),
        ("(mfu > 1", 0, "a parenthesis is not closed", "add ')'"),
        ("mfu > 1)", 7, "')' closes nothing", "remove it"),
        ("mfu >", 5, "something is missing at the end", "write a metric or a number"),
        ("mfu > * 3", 6, "'*' does not fit here", "write a metric or a number"),
        ("mfu 3", 4, "'3' follows 'mfu' without an operator", "write an operator"),
        ("mfu > hfu nto mfu", 10, "'nto' follows 'hfu' without an operator", "did you mean 'not'?"),
        ("step_time_s < inf", 14, "'inf' is not a number", "leave the condition out"),
        ("(mfu > 1) + 2 > 1", 1, "'+' wants numbers on both sides", "this side is true or false"),
        ("memory.fits > 0", 0, "'>' wants numbers on both sides", "this side is true or false"),
        ("mfu > 0 and 1", 12, "'and' wants conditions on both sides", "compare this"),
        ("not mfu", 4, "'not' wants conditions on both sides", "compare this"),
        ("__import__('os').system('true') <= 1", 11, '"\'" means nothing here', "write metrics"),
        ("(" * (DEEPEST + 1), DEEPEST, f"more than {DEEPEST} parentheses or signs inside each other", "write it flatter"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: str, offset: int, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        condition(text)

    assert (caught.value.offset, caught.value.message) == (offset, message)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_a_quantity_has_the_unit_of_its_metrics() -> None:
    quantity = parse_quantity_of("cost.training.usd / cost.training.energy_kwh", METRICS)

    assert quantity.value(VALUES) == pytest.approx(1.25)
    assert str(quantity.measure) == "USD/J"


def test_a_quantity_that_divides_by_zero_is_infinite() -> None:
    assert parse_quantity_of("-mfu / (hfu - hfu)", METRICS).value(VALUES) == -math.inf
    assert math.isnan(parse_quantity_of("0 / (hfu - hfu)", METRICS).value(VALUES))


def test_a_condition_is_no_quantity() -> None:
    with pytest.raises(ExpressionError, match="is a condition"):
        parse_quantity_of("mfu > 1", METRICS)
