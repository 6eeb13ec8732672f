"""Numbers take their units with them; every other part knows its place."""

from __future__ import annotations

import pytest

from clustersim.expressions.lexer import LONGEST, ExpressionError, tokens_of


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens_of(text)]


def test_parts_have_kinds_and_places() -> None:
    tokens = tokens_of(" a.b <= 2 and not (c)")

    assert [(token.kind, token.text, token.at) for token in tokens] == [
        ("name", "a.b", 1), ("sign", "<=", 5), ("number", "2", 8), ("word", "and", 10), ("word", "not", 14),
        ("sign", "(", 18), ("name", "c", 19), ("sign", ")", 20), ("end", "", 21),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("750 ms", 0.75, "s"),
        ("750ms", 0.75, "s"),
        ("2 h", 7200.0, "s"),
        ("80 GB", 80e9, "bytes"),
        ("80 GiB", 80 * 2.0**30, "bytes"),
        ("405 B", 405.0, "bytes"),
        ("400 Gbit/s", 5e10, "bytes/s"),
        ("989 TFLOP/s", 9.89e14, "FLOP/s"),
        ("5 MW", 5e6, "J/s"),
        ("2 kWh", 7.2e6, "J"),
        ("12 MUSD", 12e6, "USD"),
        ("3600 USD/h", 1.0, "USD/s"),
        ("3.6 USD/kWh", 1e-6, "USD/J"),
        ("40 t", 40e3, "kg"),
        ("4550 tokens/s", 4550.0, "1/s"),
        ("40 %", 0.4, "a plain number"),
    ],
)
def test_a_number_takes_its_unit_with_it(text: str, value: float, words: str) -> None:
    number, end = tokens_of(text)

    assert (number.text, str(number.measure), end.kind) == (text, words, "end")
    assert number.value == pytest.approx(value, rel=1e-15)


def test_a_number_without_a_unit_measures_nothing_yet() -> None:
    assert tokens_of("1.5e3")[0].measure is None
    assert (tokens_of("15T")[0].value, tokens_of("15T")[0].measure) == (15e12, None)


@pytest.mark.parametrize("text", ["2 and a", "2 or a", "2 * a", "2 a.b", "2 a_b"])
def test_words_and_names_are_no_units(text: str) -> None:
    assert tokens_of(text)[0].text == "2"


def test_a_slash_before_a_name_or_number_divides() -> None:
    assert kinds("10 GB/step_time_s")[:3] == [("number", "10 GB"), ("sign", "/"), ("name", "step_time_s")]
    assert kinds("10 GB/2")[:3] == [("number", "10 GB"), ("sign", "/"), ("number", "2")]


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("a = 3", 2, "'=' means nothing here", "write == to compare"),
        ("a & b", 2, "'&' means nothing here", "write 'and'"),
        ("a < 3 sx", 6, "'sx' is not a unit", "did you mean 's'?"),
        ("a < 3 adn b", 6, "'adn' is not a unit", "did you mean 'and'?"),
        ("a; b", 1, "';' means nothing here", "write metrics, numbers"),
        ("x" * (LONGEST + 1), 0, f"the expression has {LONGEST + 1} characters", "write at most"),
    ],
)
def test_a_mistake_has_its_place_and_what_would_be_right(text: str, offset: int, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        tokens_of(text)

    assert (caught.value.offset, caught.value.message) == (offset, message)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)
