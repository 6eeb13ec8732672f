"""How much load a link carries: a rate, or a share of what the link can do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from clustersim.errors import ScenarioError
from clustersim.units.fields import mistake
from clustersim.units.quantity import exact_quantity, parse_quantity

_HINT: Final = "write it such as '40 Gbit/s' or '50 %'"
_PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One of the two."""

    rate_bytes_per_s: float | None = None
    fraction: float | None = None
    """Of the data-sheet bandwidth of each link."""

    def on(self, bandwidth_bytes_per_s: float) -> float:
        """Return the rate on a link, in bytes per second."""
        if self.rate_bytes_per_s is not None:
            return self.rate_bytes_per_s
        return (self.fraction or 0.0) * bandwidth_bytes_per_s


def _read(value: object) -> Amount:
    if isinstance(value, Amount):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.endswith("%"):
        return Amount(fraction=_share(text))
    try:
        rate = parse_quantity(value, "B/s")
    except ScenarioError as error:
        raise mistake(error.message, _HINT) from error
    if rate == 0.0:
        raise mistake("a load of nothing is none", _HINT)
    return Amount(rate_bytes_per_s=rate)


def _share(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0.0 < percent <= _PERCENT:
        raise mistake(f"'{text}' is not a share above 0 % and at most 100 %", _HINT)
    return percent / _PERCENT


def _write(amount: Amount) -> str:
    if amount.rate_bytes_per_s is not None:
        return exact_quantity(amount.rate_bytes_per_s, "B/s")
    fraction = amount.fraction or 0.0
    text = f"{fraction * _PERCENT:g} %"
    return text if _share(text) == fraction else f"{fraction * _PERCENT!r} %"


LoadAmount = Annotated[
    Amount, BeforeValidator(_read), PlainSerializer(_write), WithJsonSchema({"type": "string", "examples": ["40 Gbit/s", "50 %"]})
]
"""A field that holds one."""
