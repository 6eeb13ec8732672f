from __future__ import annotations

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from clustersim.units.fields import (
    Bytes,
    BytesPerSecond,
    Count,
    FlopsPerSecond,
    NonNegativeInt,
    PositiveInt,
    PositiveRatio,
    Seconds,
    UsdPerHour,
    UsdPerKilowattHour,
    Watts,
    numbers_of,
)


class Device(BaseModel):
    memory: Bytes
    bandwidth: BytesPerSecond
    peak: FlopsPerSecond
    latency: Seconds
    power: Watts
    tokens: Count
    price: UsdPerHour
    energy: UsdPerKilowattHour


TEXTS = {
    "memory": "80 GB",
    "bandwidth": "3.35 TB/s",
    "peak": "989 TFLOP/s",
    "latency": "1.5 us",
    "power": "700 W",
    "tokens": "15T",
    "price": "2.5 USD/h",
    "energy": "0.08 USD/kWh",
}


def test_fields_hold_si_floats() -> None:
    device = Device.model_validate(TEXTS)

    assert (device.memory, device.bandwidth, device.peak) == (80e9, 3.35e12, 989e12)
    assert (device.latency, device.power, device.tokens) == (1.5e-6, 700.0, 15e12)
    assert (device.price, device.energy) == (2.5, 0.08)


def test_fields_are_written_back_as_the_text_that_was_read() -> None:
    assert Device.model_validate(TEXTS).model_dump() == TEXTS


def test_a_field_that_cannot_be_read_says_why_and_what_would_be_right() -> None:
    with pytest.raises(ValidationError) as caught:
        Device.model_validate({**TEXTS, "bandwidth": 3350})

    (error,) = caught.value.errors()
    assert error["loc"] == ("bandwidth",)
    assert error["msg"] == "3350 has no unit"
    assert error.get("ctx", {})["hint"] == "write it with a unit, such as '3.35 TB/s'"


def test_the_json_schema_shows_how_to_write_each_field() -> None:
    properties = Device.model_json_schema()["properties"]

    assert properties["bandwidth"] == {"title": "Bandwidth", "type": "string", "examples": ["3.35 TB/s"]}
    assert "integer" in properties["tokens"]["type"]


@pytest.mark.parametrize("value", [0, -1, True, "8", 1.5, None])
def test_a_positive_integer_is_nothing_else(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[int](PositiveInt).validate_python(value)


@pytest.mark.parametrize("value", [-1, True, "8", 1.5])
def test_a_count_from_zero_is_nothing_else(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[int](NonNegativeInt).validate_python(value)


@pytest.mark.parametrize("value", [0, -0.5, float("nan"), float("inf"), "2", True])
def test_a_ratio_is_a_positive_finite_number(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[float](PositiveRatio).validate_python(value)


def test_a_ratio_may_be_a_whole_number() -> None:
    assert TypeAdapter[float](PositiveRatio).validate_python(4) == 4.0


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("3", (3,)),
        ("1,3,5,7", (1, 3, 5, 7)),
        (" 1, 3 - 5 ", (1, 3, 4, 5)),
        (["8-15"], (8, 9, 10, 11, 12, 13, 14, 15)),
        ([0, 2, "4-6"], (0, 2, 4, 5, 6)),
        (["0,2", 4], (0, 2, 4)),
        ([7, 1], (7, 1)),
        ((2, 3), (2, 3)),
    ],
)
def test_numbers_and_ranges_come_in_the_order_in_which_they_stand(written: object, numbers: tuple[int, ...]) -> None:
    assert numbers_of(written) == numbers


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "'' is not a number or a range"),
        ("1,,2", "'' is not a number or a range"),
        ([], "the list is empty"),
        ("one", "'one' is not a number or a range"),
        ([-1], "'-1' is not a number or a range"),
        ([1.5], "'1.5' is not a number or a range"),
        ([True], "'True' is not a number or a range"),
        ([[1]], "that is not a number or a range"),
        ("7-3", "the range '7-3' ends before it begins"),
        ("0-99999999", "'0-99999999' names more than 1000000 numbers"),
        (["0-600000", "600001-1200000"], "'600001-1200000' names more than 1000000 numbers"),
        ([1, "0-2"], "1 stands there twice"),
        (5, "that is not a list of numbers"),
        (None, "that is not a list of numbers"),
        ({"a": 1}, "that is not a list of numbers"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(written: object, message: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        numbers_of(written)

    assert caught.value.message() == message
    assert (caught.value.context or {})["hint"]
