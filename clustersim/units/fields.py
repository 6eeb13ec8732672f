"""pydantic field types: quantities as text with a unit outside and SI floats inside, and lists of numbers as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, TypeGuard

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from clustersim.errors import ScenarioError
from clustersim.units.quantity import exact_quantity, parse_quantity, unit_example


def mistake(message: str, hint: str) -> PydanticCustomError:
    """Return the error of a value that cannot be used, for validators of pydantic."""
    return PydanticCustomError("mistake", "{message}", {"message": message, "hint": hint})


_IN_BYTES: Final = re.compile(r"'\S+ \w?B/s'")


def _reader(unit: str, example: str | None = None) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            return parse_quantity(value, unit)
        except ScenarioError as error:
            usual = unit_example(unit)
            hint = (error.hint or "").replace(f"'{usual}'", f"'{example or usual}'")
            # '400 GB' of an adapter more likely is a slip for bits than without its time.
            raise mistake(error.message, _IN_BYTES.sub(f"'{example}'", hint) if example == _LINE else hint) from error

    return read


def _writer(unit: str) -> Callable[[float], str]:
    def write(value: float) -> str:
        return exact_quantity(value, unit)

    return write


def _schema(unit: str, example: str | None = None) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": [example or unit_example(unit)]})


_LINE: Final = "400 Gbit/s"
_BUCKET: Final = "25 MB"

Bytes = Annotated[float, BeforeValidator(_reader("B")), PlainSerializer(_writer("B")), _schema("B")]
BytesPerSecond = Annotated[float, BeforeValidator(_reader("B/s")), PlainSerializer(_writer("B/s")), _schema("B/s")]
FlopsPerSecond = Annotated[float, BeforeValidator(_reader("FLOP/s")), PlainSerializer(_writer("FLOP/s")), _schema("FLOP/s")]
Seconds = Annotated[float, BeforeValidator(_reader("s")), PlainSerializer(_writer("s")), _schema("s")]
Watts = Annotated[float, BeforeValidator(_reader("W")), PlainSerializer(_writer("W")), _schema("W")]
UsdPerHour = Annotated[float, BeforeValidator(_reader("USD/h")), PlainSerializer(_writer("USD/h")), _schema("USD/h")]
UsdPerKilowattHour = Annotated[float, BeforeValidator(_reader("USD/kWh")), PlainSerializer(_writer("USD/kWh")), _schema("USD/kWh")]
Usd = Annotated[float, BeforeValidator(_reader("USD")), PlainSerializer(_writer("USD")), _schema("USD")]
KilogramPerKilowattHour = Annotated[float, BeforeValidator(_reader("kg/kWh")), PlainSerializer(_writer("kg/kWh")), _schema("kg/kWh")]
SamplesPerSecond = Annotated[float, BeforeValidator(_reader("samples/s")), PlainSerializer(_writer("samples/s")), _schema("samples/s")]
PerSecond = Annotated[float, BeforeValidator(_reader("/s")), PlainSerializer(_writer("/s")), _schema("/s")]
TokensPerSecond = Annotated[float, BeforeValidator(_reader("tokens/s")), PlainSerializer(_writer("tokens/s")), _schema("tokens/s")]
PositiveBandwidth = Annotated[BytesPerSecond, Field(gt=0)]
LineRate = Annotated[float, BeforeValidator(_reader("B/s", _LINE)), PlainSerializer(_writer("B/s")), _schema("B/s", _LINE), Field(gt=0)]
"""Bandwidth of an adapter, a port or a cable of a network."""
BucketBytes = Annotated[float, BeforeValidator(_reader("B", _BUCKET)), PlainSerializer(_writer("B")), _schema("B", _BUCKET), Field(gt=0)]
Count = Annotated[
    float,
    BeforeValidator(_reader("count")),
    PlainSerializer(_writer("count")),
    WithJsonSchema({"type": ["integer", "string"], "examples": [unit_example("count")]}),
]

MOST_COUNT: Final = 10**15
"""Largest whole number in general: products of a few such numbers are far from the largest float, and each is exact as one."""
MOST_GPUS: Final = 2_000_000
"""Most GPUs of a cluster: twenty times the largest one known. No degree of parallelism and no number of nodes is larger."""
MOST_RATIO: Final = 1e6
"""Largest factor in general, and the inverse of the smallest: what differs by more is a slip in a unit."""

# Strict: pydantic would otherwise read `true` as 1 and "8" as 8.
PositiveInt = Annotated[int, Field(strict=True, gt=0, le=MOST_COUNT)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=MOST_COUNT)]
Degree = Annotated[int, Field(strict=True, gt=0, le=MOST_GPUS)]
PositiveRatio = Annotated[float, Field(strict=True, gt=0, ge=1 / MOST_RATIO, le=MOST_RATIO, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[PositiveRatio, Field(le=1.0)]


_PART: Final = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_MOST: Final = 1_000_000
"""Numbers in one list; a slip in a range must not fill the memory."""
_HINT: Final = "write such as [8-15] or [0, 2, 4-6]"


def numbers_of(value: object) -> tuple[int, ...]:
    """Return the numbers of a list or of text with commas, in the order in which they stand there.

    Raises
    ------
    PydanticCustomError
        When something is no number and no range, or stands there twice.

    Examples
    --------
    >>> numbers_of("1,3,5-7"), numbers_of(["8-10", 2])
    ((1, 3, 5, 6, 7), (8, 9, 10, 2))
    """
    found: dict[int, None] = {}
    for part in _parts(value):
        first, last = _range(part)
        if last - first >= _MOST or len(found) + last - first >= _MOST:
            raise mistake(f"'{part}' names more than {_MOST} numbers", _HINT)
        for number in range(first, last + 1):
            if number in found:
                raise mistake(f"{number} stands there twice", "name each number once")
            found[number] = None
    if not found:
        raise mistake("the list is empty", _HINT)
    return tuple(found)


def _parts(value: object) -> list[object]:
    if isinstance(value, str):
        return list(value.split(","))
    if _is_list(value):
        return [part for item in value for part in (item.split(",") if isinstance(item, str) else [item])]
    raise mistake("that is not a list of numbers", _HINT)


def _range(part: object) -> tuple[int, int]:
    if isinstance(part, int) and not isinstance(part, bool) and part >= 0:
        return part, part
    match = _PART.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        shown = f"'{part}'" if isinstance(part, str | int | float) else "that"
        raise mistake(f"{shown} is not a number or a range", _HINT)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise mistake(f"the range '{match[0].strip()}' ends before it begins", f"write {last}-{first}")
    return first, last


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


Numbers = Annotated[
    tuple[int, ...],
    BeforeValidator(numbers_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["1,3,5-7"]},
                {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            ]
        }
    ),
]
"""A field that holds such a list."""
