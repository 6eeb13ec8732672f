"""Unit of measure of a number, so that seconds are not compared with bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

JOULES_PER_KWH: Final = 3.6e6
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Powers of base units, and how large the unit is in which values are written."""

    powers: tuple[tuple[str, int], ...] = ()
    """Base unit and power, by name: ``(("B", 1), ("s", -1))`` for a bandwidth."""
    scale: float = 1.0
    """SI units in one unit of the value: 3.6e6 for a figure in kWh."""

    def times(self, other: Measure, power: int = 1) -> Measure:
        """Return the measure of a product, or with ``power`` -1 of a quotient."""
        powers = dict(self.powers)
        for base, exponent in other.powers:
            powers[base] = powers.get(base, 0) + power * exponent
        kept = tuple(sorted((base, exponent) for base, exponent in powers.items() if exponent))
        return Measure(powers=kept, scale=self.scale * other.scale**power)

    def __str__(self) -> str:
        """Return such as ``bytes/s``; ``a plain number`` without any unit."""
        over = [_power(_WORDS.get(base, base), exponent) for base, exponent in self.powers if exponent > 0]
        under = [_power(_WORDS.get(base, base), -exponent) for base, exponent in self.powers if exponent < 0]
        if not over and not under:
            return "a plain number"
        return "/".join([" ".join(over) or "1", *under])


_WORDS: Final[Mapping[str, str]] = {"B": "bytes"}


def _power(word: str, exponent: int) -> str:
    return word if exponent == 1 else f"{word}^{exponent}"


PLAIN: Final = Measure()

_HEADS: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "s": Measure(powers=(("s", 1),)),
        "hours": Measure(powers=(("s", 1),), scale=HOUR_S),
        "bytes": Measure(powers=(("B", 1),)),
        "flops": Measure(powers=(("FLOP", 1),)),
        "tflops": Measure(powers=(("FLOP", 1), ("s", -1)), scale=1e12),
        "usd": Measure(powers=(("USD", 1),)),
        "kwh": Measure(powers=(("J", 1),), scale=JOULES_PER_KWH),
        "w": Measure(powers=(("J", 1), ("s", -1))),
        "kg": Measure(powers=(("kg", 1),)),
    }
)
"""Measure of a value by the last word of its key."""

_UNDER: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "s": _HEADS["s"],
        "gpu_hour": _HEADS["hours"],
        "day": Measure(powers=(("s", 1),), scale=DAY_S),
        "kwh": _HEADS["kwh"],
    }
)
"""The same after ``_per_``; a step, a GPU or a million tokens are counted and not measured."""

KINDS: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "s": _HEADS["s"],
        "B/s": _HEADS["bytes"].times(_HEADS["s"], -1),
        "B": _HEADS["bytes"],
        "FLOP/s": Measure(powers=(("FLOP", 1), ("s", -1))),
        "W": _HEADS["w"],
        "kWh": _HEADS["kwh"],
        "USD": _HEADS["usd"],
        "USD/h": _HEADS["usd"].times(_HEADS["hours"], -1),
        "USD/kWh": _HEADS["usd"].times(_HEADS["kwh"], -1),
        "kg": _HEADS["kg"],
        "kg/kWh": _HEADS["kg"].times(_HEADS["kwh"], -1),
        "samples/s": PLAIN.times(_HEADS["s"], -1),
        "tokens/s": PLAIN.times(_HEADS["s"], -1),
        "Hz": PLAIN.times(_HEADS["s"], -1),
        "count": PLAIN,
    }
)
"""Measure of each unit of :mod:`clustersim.units.quantity`, in the order in which a text is tried."""


def measure_of_key(key: str) -> Measure:
    """Return the unit of a dotted key, from its name; a part without a unit has that of the part before it.

    Examples
    --------
    >>> str(measure_of_key("memory.peak_bytes")), str(measure_of_key("breakdown_s.compute")), str(measure_of_key("mfu"))
    ('bytes', 's', 'a plain number')
    """
    for part in reversed(key.split(".")):
        found = _measure_of_part(part)
        if found is not None:
            return found
    return PLAIN


def _measure_of_part(part: str) -> Measure | None:
    head, *under = part.split("_per_")
    word = re.sub(r"_co2e$", "", head).rpartition("_")[2]
    if word not in _HEADS and not any(each in _UNDER for each in under):
        return None
    measure = _HEADS.get(word, PLAIN)
    for each in under:
        measure = measure.times(_UNDER.get(each, PLAIN), -1)
    return measure
