"""Values in sentences."""

from __future__ import annotations

import pytest

from clustersim.apps.study.sentences import filled, names_in, short


def test_names_stand_in_braces() -> None:
    assert names_in("{a_s} is {b.c.d_bytes}, {not a name} {}") == ("a_s", "b.c.d_bytes")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_s", 1.23456, "1.23 s"),
        ("peak_bytes", 123.4e9, "123 GB"),
        ("lost_fraction", 0.4567, "45.7 %"),
        ("ratio", 1.0, "1"),
        ("ratio", 12.345, "12.3"),
        ("samples_per_s", 12345.0, "12,300"),
        ("ratio", None, "-"),
    ],
)
def test_a_value_has_three_digits_and_the_unit_of_its_name(name: str, value: float | None, text: str) -> None:
    assert short(name, value) == text


def test_what_is_filled_in_is_not_read_again() -> None:
    assert filled("{a} and {b_s}", {"a": 2.0, "b_s": 3.0}) == "2 and 3 s"
