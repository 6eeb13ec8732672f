from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import ScenarioError
from clustersim.units.quantity import exact_quantity, format_quantity, parse_quantity

RANGES = {
    "B": (0.125, 1e24),
    "B/s": (1e-3, 1e21),
    "FLOP/s": (1.0, 1e27),
    "s": (1e-12, 1e15),
    "W": (1e-6, 1e15),
    "Hz": (1e-6, 1e18),
    "USD/h": (1e-9, 1e12),
    "USD/kWh": (1e-9, 1e9),
}
UNITS = tuple(RANGES)


@st.composite
def quantities(draw: st.DrawFn) -> tuple[float, str]:
    """Return a value that a unit takes, and the unit."""
    unit = draw(st.sampled_from(UNITS))
    least, most = RANGES[unit]
    # A tenth away from the ends, beyond which a rounded text may lie.
    return draw(st.floats(min_value=1.1 * least, max_value=0.9 * most)), unit


def quantity_or_none(text: str, unit: str) -> float | None:
    try:
        return parse_quantity(text, unit)
    except ScenarioError:
        return None


@given(quantities())
def test_an_exact_text_is_read_back_as_the_same_float(quantity: tuple[float, str]) -> None:
    value, unit = quantity

    assert parse_quantity(exact_quantity(value, unit), unit) == value


@given(quantities(), st.integers(min_value=2, max_value=9))
def test_a_shown_text_is_read_back_to_its_digits(quantity: tuple[float, str], digits: int) -> None:
    value, unit = quantity

    read = parse_quantity(format_quantity(value, unit, digits), unit)

    # Half a unit in the last digit shown, with room for the floats of the comparison itself.
    assert read == pytest.approx(value, rel=0.501 * 10.0 ** (1 - digits))


@given(
    number=st.integers(min_value=0, max_value=10**14),
    prefix=st.sampled_from([("k", 1e3), ("M", 1e6), ("G", 1e9), ("Ki", 2.0**10), ("Gi", 2.0**30)]),
)
def test_a_prefix_multiplies(number: int, prefix: tuple[str, float]) -> None:
    letter, factor = prefix

    assert parse_quantity(f"{number} {letter}B", "B") == pytest.approx(number * factor, rel=1e-15)


@given(number=st.integers(min_value=0, max_value=10**8), prefix=st.sampled_from(["", "k", "M", "G", "T"]))
def test_eight_bits_are_one_byte(number: int, prefix: str) -> None:
    in_bits = parse_quantity(f"{number} {prefix}bit/s", "B/s")
    in_bytes = parse_quantity(f"{number} {prefix}B/s", "B/s")

    assert 8 * in_bits == pytest.approx(in_bytes, rel=1e-15)


near_quantities = st.from_regex(r"[-+]?[0-9_.eE]{0,8} ?[QRYZEPTGMKkmunp]?i?[a-zA-Z/$]{0,7}", fullmatch=True)


@given(text=st.text(max_size=80) | near_quantities, unit=st.sampled_from((*UNITS, "count")))
def test_any_text_is_a_quantity_or_one_clear_error(text: str, unit: str) -> None:
    value = quantity_or_none(text, unit)

    assert value is None or (math.isfinite(value) and value >= 0)


@given(st.sampled_from(UNITS), st.sampled_from([1e-3, 1e3]))
def test_a_number_beyond_what_there_is_says_the_range(unit: str, beyond: float) -> None:
    edge = RANGES[unit][beyond > 1] * beyond * (1e-6 if beyond < 1 else 1.0)

    with pytest.raises(ScenarioError, match=r"is out of range; write .* of .* to .*, such as"):
        parse_quantity(exact_quantity(edge, unit), unit)


@given(value=st.integers(min_value=0, max_value=2**53))
def test_a_count_is_itself(value: int) -> None:
    assert parse_quantity(value, "count") == parse_quantity(str(value), "count") == value
