"""Expressions agree with Python where both can read them, and refuse everything else without breaking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import parse_condition, parse_quantity_of

METRICS = {"a": False, "b_s": False, "ok": True}
NUMBERS = st.integers(0, 1000).map(str)


def sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(" ".join)
    return pair | inner.map(lambda text: f"({text})") | inner.map(lambda text: f"-{text}")


ARITHMETIC = st.recursive(NUMBERS | st.just("a"), sums, max_leaves=12)


@given(text=ARITHMETIC, a=st.integers(-1000, 1000))
def test_arithmetic_is_that_of_python(text: str, a: int) -> None:
    expected = float(eval(text, {"__builtins__": {}}, {"a": a}))

    assert parse_quantity_of(text, METRICS).value({"a": a}) == pytest.approx(expected, rel=1e-12)


@given(
    pairs=st.lists(
        st.tuples(ARITHMETIC, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), ARITHMETIC).map(" ".join), min_size=1, max_size=4
    ),
    words=st.lists(st.sampled_from(["and", "or", "and not", "or not"]), min_size=4, max_size=4),
    a=st.integers(-9, 9),
)
def test_conditions_are_those_of_python(pairs: list[str], words: list[str], a: int) -> None:
    text = pairs[0] + "".join(f" {word} {pair}" for word, pair in zip(words, pairs[1:], strict=False))

    assert parse_condition(text, METRICS).holds({"a": a}) is bool(eval(text, {"__builtins__": {}}, {"a": float(a)}))


def refusal(text: str) -> ExpressionError | None:
    """Return why a text is no condition; evaluate it where it is one."""
    try:
        parse_condition(text, METRICS).holds({"a": 1.0, "b_s": 2.0, "ok": True})
    except ExpressionError as error:
        return error
    return None


@given(text=st.text(alphabet="ab_s ok.()<>=!+-*/0123456789 GBandort%$", max_size=40))
def test_any_text_is_read_or_refused_with_a_place_in_it(text: str) -> None:
    error = refusal(text)

    assert error is None or (0 <= error.offset <= len(text) and error.hint)


@given(bare=st.integers(0, 10**6), value=st.floats(0, 1e6))
def test_a_bare_number_counts_in_the_unit_of_the_metric(bare: int, value: float) -> None:
    metrics = {"energy_kwh": False}

    assert parse_condition(f"energy_kwh < {bare}", metrics).holds({"energy_kwh": value}) is (value * 3.6e6 < bare * 3.6e6)
