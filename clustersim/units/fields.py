"""pydantic field types for quantities: text with a unit outside, SI floats inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from clustersim.errors import ScenarioError
from clustersim.units.quantity import exact_quantity, parse_quantity, unit_example


def mistake(message: str, hint: str) -> PydanticCustomError:
    """Return the error of a value that cannot be used, for validators of pydantic."""
    return PydanticCustomError("mistake", "{message}", {"message": message, "hint": hint})


def _reader(unit: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            return parse_quantity(value, unit)
        except ScenarioError as error:
            raise mistake(error.message, error.hint or "") from error

    return read


def _writer(unit: str) -> Callable[[float], str]:
    def write(value: float) -> str:
        return exact_quantity(value, unit)

    return write


def _schema(unit: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": [unit_example(unit)]})


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
Count = Annotated[
    float,
    BeforeValidator(_reader("count")),
    PlainSerializer(_writer("count")),
    WithJsonSchema({"type": ["integer", "string"], "examples": [unit_example("count")]}),
]

MOST_COUNT: Final = 10**15
"""Largest whole number in general: products of a few such numbers are far from the largest float, and each is exact as one."""
MOST_GPUS: Final = 2_000_000
"""Most GPUs of a cluster: twenty times the largest one known. No degree of parallelism and no number of nodes can be larger."""
MOST_RATIO: Final = 1e6
"""Largest factor in general, and the inverse of the smallest: what differs by more is a slip in a unit."""

# Strict: pydantic would otherwise read `true` as 1 and "8" as 8.
PositiveInt = Annotated[int, Field(strict=True, gt=0, le=MOST_COUNT)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=MOST_COUNT)]
Degree = Annotated[int, Field(strict=True, gt=0, le=MOST_GPUS)]
PositiveRatio = Annotated[float, Field(strict=True, gt=0, ge=1 / MOST_RATIO, le=MOST_RATIO, allow_inf_nan=False)]
