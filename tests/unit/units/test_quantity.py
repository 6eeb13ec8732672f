from __future__ import annotations

import re

import pytest

from clustersim.errors import ScenarioError
from clustersim.units.quantity import exact_quantity, format_quantity, parse_quantity, unit_example

ALL_UNITS = ("B", "B/s", "FLOP/s", "s", "W", "Hz", "USD/h", "USD/kWh", "/s", "count")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2.0**30),
        ("25 MB", "B", 25e6),
        ("1 KB", "B", 1e3),
        ("1 kB", "B", 1e3),
        ("8 Gbit", "B", 1e9),
        ("64 bytes", "B", 64.0),
        ("400 Gbit/s", "B/s", 5e10),
        ("400 Gb/s", "B/s", 5e10),
        ("400 Gbps", "B/s", 5e10),
        ("3.35 TB/s", "B/s", 3.35e12),
        ("3.35TB/s", "B/s", 3.35e12),
        ("1_000 MB/s", "B/s", 1e9),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("1.979 PFLOPS", "FLOP/s", 1.979e15),
        ("5 TFLOPs", "FLOP/s", 5e12),
        ("1 flop/s", "FLOP/s", 1.0),
        ("1.5 us", "s", 1.5e-6),
        ("1.5 µs", "s", 1.5e-6),
        ("130 ns", "s", 130e-9),
        ("5 ms", "s", 5e-3),
        ("90 s", "s", 90.0),
        ("30 min", "s", 1800.0),
        ("8 h", "s", 28800.0),
        ("2 days", "s", 172800.0),
        ("1 week", "s", 604800.0),
        ("5 years", "s", 5 * 365 * 86400.0),
        ("700 W", "W", 700.0),
        ("10.2 kW", "W", 10200.0),
        ("1.41 GHz", "Hz", 1.41e9),
        ("2.50 USD/h", "USD/h", 2.5),
        ("2.50 USD", "USD/h", 2.5),
        ("0.08 USD/kWh", "USD/kWh", 0.08),
        ("80 USD/MWh", "USD/kWh", 0.08),
        ("15T", "count", 15e12),
        ("1.5M", "count", 1.5e6),
        ("70B", "count", 70e9),
        ("528.7B", "count", 528.7e9),
        ("1024", "count", 1024.0),
        (1024, "count", 1024.0),
        (1e12, "count", 1e12),
    ],
)
def test_a_quantity_is_read_as_an_si_float(text: object, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("unit", [unit for unit in ALL_UNITS if unit != "count"])
@pytest.mark.parametrize("bare", [3350, " 3.5 "])
def test_a_bare_number_is_refused(bare: object, unit: str) -> None:
    with pytest.raises(ScenarioError, match="has no unit") as caught:
        parse_quantity(bare, unit)

    hinted = re.findall(r"'([^']+)'", str(caught.value.hint))
    assert hinted
    assert all(parse_quantity(each, unit) > 0.0 for each in hinted)
    assert unit != "/s" or hinted == [f"{str(bare).strip()}/s"]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("400 GB/s", "B"),
        ("400 Gb", "B"),
        ("5 W", "s"),
        ("25 mb/s", "B/s"),
        ("25 mB", "B"),
        ("5m", "count"),
        ("15 TB", "count"),
        ("3.35 tb/s", "B/s"),
        ("5 GB/s/s", "B/s"),
        ("5 T B", "B"),
        ("5 TB -- much", "B"),
        ("x = 5 GB", "B"),
        ("5__0 GB", "B"),
        ("5_ GB", "B"),
        ("0_i", "B"),
        ("fast", "B/s"),
        ("", "B"),
        ("nan B", "B"),
        ("inf s", "s"),
        ("٣ GB", "B"),
        ("$5", "USD/h"),
    ],
)
def test_another_unit_or_no_quantity_at_all_is_refused_with_an_example(text: str, unit: str) -> None:
    with pytest.raises(ScenarioError, match=r" is not an? ") as caught:
        parse_quantity(text, unit)

    assert unit_example(unit) in str(caught.value.hint)


@pytest.mark.parametrize("value", [None, True, False, [], {}, object(), "x" * 1000, float("nan"), float("inf")])
@pytest.mark.parametrize("unit", ["B", "count"])
def test_what_is_no_text_is_refused_shortly(value: object, unit: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_quantity(value, unit)

    assert len(str(caught.value)) < 200


def test_a_decimal_comma_is_refused_and_not_read_as_thousands() -> None:
    with pytest.raises(ScenarioError):
        parse_quantity("1,5 GB", "B")


def test_a_negative_quantity_is_refused() -> None:
    with pytest.raises(ScenarioError, match="-5 GB/s is negative"):
        parse_quantity("-5 GB/s", "B/s")


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ScenarioError, match="not a finite number"):
        parse_quantity("1e400 B", "B")


def test_half_a_thing_cannot_be_counted() -> None:
    with pytest.raises(ScenarioError, match="not a whole number"):
        parse_quantity("1.5", "count")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5e10, "B/s", "50 GB/s"),
        (80e9, "B", "80 GB"),
        (0.5, "B", "0.5 B"),
        (0.0, "B", "0 B"),
        (123456.0, "B", "123 kB"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (0.0123, "s", "12.3 ms"),
        (1.5e-6, "s", "1.5 us"),
        (0.0, "s", "0 s"),
        (12.3456, "s", "12.3 s"),
        (119.0, "s", "119 s"),
        (120.0, "s", "2 min"),
        (5400.0, "s", "90 min"),
        (86400.0, "s", "24 h"),
        (3 * 86400.0, "s", "3 days"),
        (5 * 365 * 86400.0, "s", "5 years"),
        (1e12, "s", "31710 years"),
        (700.0, "W", "700 W"),
        (1.2e6, "W", "1.2 MW"),
        (2.5, "USD/h", "2.5 USD/h"),
        (12345.6, "USD/h", "12346 USD/h"),
        (0.08, "USD/kWh", "0.08 USD/kWh"),
        (15e12, "count", "15T"),
        (512.0, "count", "512"),
    ],
)
def test_a_value_is_shown_with_the_unit_that_suits_its_size(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


def test_digits_are_significant_digits() -> None:
    assert format_quantity(1.23456789e9, "B", digits=5) == "1.2346 GB"


@pytest.mark.parametrize("unit", ALL_UNITS)
def test_the_example_of_each_unit_can_be_read(unit: str) -> None:
    assert parse_quantity(unit_example(unit), unit) > 0


def test_an_exact_text_keeps_what_rounding_would_lose() -> None:
    value = 80 * 2.0**30

    assert exact_quantity(value, "B") == "85.89934592 GB"
    assert parse_quantity(exact_quantity(value, "B"), "B") == value


def test_an_exact_text_is_short_where_it_can_be() -> None:
    assert exact_quantity(3.35e12, "B/s") == "3.35 TB/s"


def test_reading_quantities_leaves_the_preferences_of_quantiphy_alone() -> None:
    quantiphy = pytest.importorskip("quantiphy")
    before = quantiphy.Quantity("1000 m").render()

    parse_quantity("30 min", "s")

    assert quantiphy.Quantity("1000 m").render() == before


@pytest.mark.parametrize(
    ("text", "unit", "value", "shown"),
    [
        ("12 MUSD", "USD", 12e6, "12 MUSD"),
        ("250 $", "USD", 250.0, "250 USD"),
        ("5 GWh", "kWh", 5e6, "5 GWh"),
        ("3.6 MJ", "kWh", 1.0, "1 kWh"),
        ("40 t", "kg", 40e3, "40000 kg"),
        ("380 g/kWh", "kg/kWh", 0.38, "0.38 kg/kWh"),
    ],
)
def test_money_energy_and_carbon_are_read_and_shown(text: str, unit: str, value: float, shown: str) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)
    assert format_quantity(value, unit) == shown
    assert parse_quantity(exact_quantity(value, unit), unit) == value


@pytest.mark.parametrize(
    ("written", "likely"), [("400 Gb", "400 Gbit/s"), ("400 GBit", "400 Gbit/s"), ("50 GB", "50 GB/s"), ("400 hay", "3.35 TB/s")]
)
def test_a_bandwidth_without_its_time_is_told_which_one_it_may_be(written: str, likely: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_quantity(written, "B/s")

    assert caught.value.hint == f"write it such as '{likely}'"
