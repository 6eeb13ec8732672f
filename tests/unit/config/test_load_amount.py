"""A load as a rate or as a share."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from clustersim.config.scenario_schema import Amount, LoadAmount

FIELD: TypeAdapter[Amount] = TypeAdapter(LoadAmount)


@pytest.mark.parametrize(("text", "rate"), [("40 Gbit/s", 5e9), ("12.5 GB/s", 12.5e9)])
def test_a_rate_is_the_same_on_every_link(text: str, rate: float) -> None:
    load = FIELD.validate_python(text)

    assert load.on(1e9) == load.on(4e10) == rate


@pytest.mark.parametrize("text", ["50 %", "50%", " 50.0 % "])
def test_a_share_is_of_each_link(text: str) -> None:
    load = FIELD.validate_python(text)

    assert (load.on(1e9), load.on(4e10)) == (5e8, 2e10)


@pytest.mark.parametrize("text", ["40 Gbit/s", "50 %", "100 %", "12.5 %", "33.333333333333336 %", "0.07 %", "29 %", "58.1 %"])
def test_what_is_written_back_means_the_same(text: str) -> None:
    load = FIELD.validate_python(text)

    assert FIELD.validate_python(FIELD.dump_python(load, mode="json")) == load


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0 %", "'0 %' is not a share above 0 % and at most 100 %"),
        ("101 %", "'101 %' is not a share above 0 % and at most 100 %"),
        ("-5 %", "'-5 %' is not a share above 0 % and at most 100 %"),
        ("nan %", "'nan %' is not a share above 0 % and at most 100 %"),
        ("half %", "'half %' is not a share above 0 % and at most 100 %"),
        ("0 Gbit/s", "a load of nothing is none"),
        ("5 GB", "'5 GB' is not a bandwidth"),
        ("0.5", "0.5 has no unit"),
        (0.5, "0.5 has no unit"),
        (None, "an empty value is not a bandwidth"),
    ],
)
def test_what_is_no_load_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FIELD.validate_python(value)

    (error,) = caught.value.errors()
    assert error["msg"] == message
    assert error.get("ctx", {})["hint"] == "write it such as '40 Gbit/s' or '50 %'"
