"""Text with a unit to an SI float, and back."""

# pyright: reportUnknownMemberType=false
# quantiphy declares some of its arguments without full types; what it returns is typed.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from clustersim.errors import ScenarioError
from clustersim.units.divisors import shortened

if TYPE_CHECKING:
    from quantiphy import Quantity

YEAR_S: Final = 365 * 86400.0
"""Seconds in a year of 365 days, as reliability and price lists count it."""

_LARGE: Final = "QRYZEPTGMKk"
_SMALL: Final = "munp"
_LONGEST_TEXT: Final = 64
_LEAST_ALIKE: Final = 1e-3
"""Below this a value beside one a thousand times as large is told as less than it, both in the unit of the larger."""
_FEW_S: Final = 6.0
"""Below this a time is told in seconds, and those beside it are too."""
_ROUND_TRIP_DIGITS: Final = 17
_SHAPE: Final = re.compile(r"[+-]?(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*[A-Za-z$/]*", re.ASCII)
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT])(B|b|[Bb]its?|)(?:/s|ps)?", re.ASCII)
"""A bandwidth with a prefix, whose time may be missing."""
_SMALL_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(i?)b", re.ASCII)
"""A size whose unit is in small letters."""
_TWO_SCALES: Final = re.compile(r"[A-Za-z]B$")
_BILLIONS: Final = re.compile(r"B$")
"""A count in billions is written with B, which takes no further prefix."""
_PER: Final = re.compile(r"(?<=[0-9.])\s*/")
_BARE: Final = re.compile(r"[+-]?(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"_bytes_per_s": "B/s", "_flops_per_s": "FLOP/s", "_bytes": "B", "_s": "s", "_w": "W", "": ""}
)
"""Endings of names of quantities in SI, longer ones first, and their units."""


def ending_of(name: str) -> str:
    """Return the ending that says the unit of a quantity; empty without one."""
    return next(end for end in ENDINGS if name.endswith(end))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Notation of one kind of quantity."""

    what: str
    example: str
    prefixes: str
    factors: Mapping[str, float]
    label: str
    least: float
    """Smallest value but zero, and"""
    most: float
    """largest, in the unit of the value: a millionth of what there is, and a million times as much, or more. What lies beyond is a slip,
    and products of such numbers overflow."""
    label_factor: float = 1.0
    """Size of one of the label, in the unit of the value."""

    @property
    def such(self) -> str:
        """Examples, as a hint has them; times are of every length."""
        return "'1.5 us', '30 s' or '8 h'" if self.label == "s" else f"'{self.example}'"


_BIT: Final = 1 / 8
_TIME_FACTORS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 7 * 86400.0),
    **dict.fromkeys(("year", "years"), YEAR_S),
}
_BYTE_FACTORS: Final[Mapping[str, float]] = {**dict.fromkeys(("B", "byte", "bytes"), 1.0), **dict.fromkeys(("bit", "bits"), _BIT)}
# "Gb/s" and "Gbps" always mean bits in networking; for sizes a lone "b" is more often a slip, so it is not read there.
_RATE_FACTORS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("B/s", "byte/s", "bytes/s"), 1.0),
    **dict.fromkeys(("bit/s", "bits/s", "b/s", "bps"), _BIT),
}
_FLOP_FACTORS: Final[Mapping[str, float]] = dict.fromkeys(("FLOP/s", "FLOPS", "FLOPs", "Flop/s", "Flops", "flop/s", "flops"), 1.0)

_UNITS: Final[Mapping[str, _Unit]] = MappingProxyType(
    {
        "B": _Unit(what="a size", example="80 GB", prefixes=_LARGE, factors=_BYTE_FACTORS, label="B", least=_BIT, most=1e24),
        "B/s": _Unit(what="a bandwidth", example="3.35 TB/s", prefixes=_LARGE, factors=_RATE_FACTORS, label="B/s", least=1e-3, most=1e21),
        "FLOP/s": _Unit(
            what="a compute rate", example="989 TFLOP/s", prefixes=_LARGE, factors=_FLOP_FACTORS, label="FLOP/s", least=1.0, most=1e27
        ),
        "s": _Unit(what="a time", example="1.5 us", prefixes=_SMALL, factors=_TIME_FACTORS, label="s", least=1e-18, most=1e15),
        "W": _Unit(what="a power", example="700 W", prefixes="GMkm", factors={"W": 1.0}, label="W", least=1e-6, most=1e15),
        "Hz": _Unit(what="a frequency", example="1.41 GHz", prefixes="GMk", factors={"Hz": 1.0}, label="Hz", least=1e-6, most=1e18),
        "USD/h": _Unit(
            what="a price per hour",
            example="2.50 USD/h",
            prefixes="",
            factors=dict.fromkeys(("USD/h", "USD/hour", "$/h", "$/hour", "USD"), 1.0),
            label="USD/h",
            least=1e-9,
            most=1e12,
        ),
        "USD/kWh": _Unit(
            what="a price of energy",
            example="0.08 USD/kWh",
            prefixes="",
            factors={"USD/kWh": 1.0, "$/kWh": 1.0, "USD/MWh": 1e-3},
            label="USD/kWh",
            least=1e-9,
            most=1e9,
        ),
        "USD": _Unit(
            what="an amount of money", example="12 MUSD", prefixes="GMk", factors={"USD": 1.0, "$": 1.0}, label="USD", least=1e-6, most=1e18
        ),
        "kWh": _Unit(
            what="an energy",
            example="5 GWh",
            prefixes="TGMk",
            factors={"Wh": 1e-3, "J": 1 / 3.6e6},
            label="Wh",
            least=1e-12,
            most=1e18,
            label_factor=1e-3,
        ),
        "kg": _Unit(
            what="a mass",
            example="40 t",
            prefixes="",
            factors={"kg": 1.0, "g": 1e-3, "t": 1e3, "kt": 1e6, "Mt": 1e9},
            label="kg",
            least=1e-9,
            most=1e18,
        ),
        "kg/kWh": _Unit(
            what="a carbon intensity",
            example="0.4 kg/kWh",
            prefixes="",
            factors={"kg/kWh": 1.0, "g/kWh": 1e-3, "t/MWh": 1.0},
            label="kg/kWh",
            least=1e-9,
            most=1e6,
        ),
        "samples/s": _Unit(
            what="a rate of samples",
            example="2500 samples/s",
            prefixes="Mk",
            factors=dict.fromkeys(("samples/s", "sample/s", "images/s", "sequences/s"), 1.0),
            label="samples/s",
            least=1e-9,
            most=1e15,
        ),
        "tokens/s": _Unit(
            what="a rate of tokens",
            example="4550 tokens/s",
            prefixes="Mk",
            factors={"tokens/s": 1.0, "token/s": 1.0},
            label="tokens/s",
            least=1e-9,
            most=1e18,
        ),
        "/s": _Unit(
            what="a rate of requests",
            example="4 /s",
            prefixes="",
            factors={
                **dict.fromkeys(("requests/s", "request/s", "req/s"), 1.0),
                **dict.fromkeys(("requests/min", "request/min", "req/min"), 1 / 60),
                **dict.fromkeys(("requests/h", "request/h", "req/h"), 1 / 3600),
            },
            label="/s",
            least=1e-9,
            most=1e9,
        ),
        "count": _Unit(what="a count", example="15T", prefixes=_LARGE, factors={"": 1.0}, label="", least=1.0, most=1e24),
    }
)


def unit_example(unit: str) -> str:
    """Return a well-written quantity of a unit, for messages and schemas."""
    return _UNITS[unit].example


def parse_quantity(text: object, unit: str) -> float:
    """Return a text with a unit as an SI float.

    ``GB`` is 1e9 bytes, ``GiB`` is 2**30 bytes, ``Gbit`` is 1e9 / 8 bytes. A year has 365 days.

    Parameters
    ----------
    text
        Such as ``400 Gbit/s``. Only a ``count`` may be a bare number.
    unit
        One of ``B``, ``B/s``, ``FLOP/s``, ``s``, ``W``, ``Hz``, ``USD``, ``USD/h``, ``USD/kWh``, ``kWh``, ``kg``, ``kg/kWh``,
        ``samples/s``, ``tokens/s``, ``/s``, ``count``. The value is in this unit.

    Raises
    ------
    ScenarioError
        For a bare number, another unit, a negative or not finite number, one that is out of range, or no text at all.

    Examples
    --------
    >>> parse_quantity("400 Gbit/s", "B/s")
    50000000000.0
    >>> parse_quantity("15T", "count")
    15000000000000.0
    """
    form, value = _UNITS[unit], _parsed(text, unit)
    if value and not form.least <= value <= form.most:
        least, most = (f"{edge / form.label_factor:g} {form.label}".strip() for edge in (form.least, form.most))
        shown = str(text).strip()
        raise ScenarioError(f"{shown} is out of range", hint=f"write {form.what} of {least} to {most}, such as {form.such}")
    return value


def _likely(written: str, unit: str) -> str:
    """Return the bandwidth that a text without its time, or the quantity that one with a slip of case means; empty of others.

    Examples
    --------
    >>> _likely("400 Gb", "B/s"), _likely("400G", "B/s"), _likely("50 GB", "B/s"), _likely("400 Gb", "B"), _likely("40 gib", "B")
    ('400 Gbit/s', '400 Gbit/s', '50 GB/s', '', '40 GiB')
    """
    if unit == "B" and (size := _SMALL_SIZE.fullmatch(written)):
        return f"{size[1]} {size[2].upper()}{size[3]}B"
    found = _RATE.fullmatch(written) if unit == "B/s" else None
    return f"{found[1]} {found[2]}{'B' if found[3] == 'B' else 'bit'}/s" if found else ""


def _parsed(text: object, unit: str) -> float:
    form = _UNITS[unit]
    written = _as_text(text, form)
    if not _SHAPE.fullmatch(written) or (unit == "count" and _TWO_SCALES.search(written)):
        raise ScenarioError(f"{_show(text)} is not {form.what}", hint=f"write it such as {form.such}")
    if unit != "count" and _BARE.fullmatch(written):
        such = f"'{written} us', '{written} s', '{written} h' or '{written} years'" if unit == "s" else form.such
        if not form.prefixes:  # it has one size, so that the number itself can be quoted
            such = f"'{written} {form.label}'".replace(" /", "/")
        raise ScenarioError(f"{written} has no unit", hint=f"write it with a unit, such as {such}")
    if unit == "/s":  # quantiphy knows no unit that begins with a stroke
        written = _PER.sub(" requests/", written)
    try:
        number = _number_class(form.prefixes)(_BILLIONS.sub("G", written) if unit == "count" else written, binary=True)
        factor = form.factors[number.units]
    except (ValueError, KeyError) as error:
        such = f"'{likely}'" if (likely := _likely(written, unit)) else form.such
        raise ScenarioError(f"{_show(text)} is not {form.what}", hint=f"write it such as {such}") from error
    return _checked(number.real * factor, written, form, whole=unit == "count")


def format_quantity(value: float, unit: str, digits: int = 3) -> str:
    """Return a value as text with a unit and a number of significant digits.

    Examples
    --------
    >>> format_quantity(5e10, "B/s"), format_quantity(0.0123, "s"), format_quantity(5400.0, "s"), format_quantity(7e10, "count")
    ('50 GB/s', '12.3 ms', '90 min', '70B')
    """
    text = _formatted(value, unit, digits)
    return text.replace("G", "B") if unit == "count" else text  # as people write billions of tokens and parameters


def _formatted(value: float, unit: str, digits: int) -> str:
    form = _UNITS[unit]
    if unit == "s":
        return _format_time(value, digits)
    return _render(value / form.label_factor, form.label, form.prefixes, digits)


def format_alike(values: Sequence[float], unit: str, digits: int = 3, *, as_of: float | None = None) -> list[str]:
    """Return values as text in one unit, that of another value or of the largest; seconds in the place of minutes beside a few seconds.

    Examples
    --------
    >>> format_alike([34.8, 0.315, 0.0], "s"), format_alike([104.0, 123.6], "s"), format_alike([600.0, 0.4, 0.0004], "s")
    (['34.8 s', '0.315 s', '0 s'], ['1.73 min', '2.06 min'], ['600 s', '0.4 s', '<0.001 s'])
    """
    largest = max(map(abs, values), default=0.0)
    label = format_quantity(largest if as_of is None else as_of, unit, digits).partition(" ")[2]
    if label == "min" and any(0.0 < abs(value) < _FEW_S for value in values):
        label = "s"
    factor = parse_quantity(f"1 {label}", unit) if label else 1.0
    tiny = [0.0 < value / factor < _LEAST_ALIKE and value < _LEAST_ALIKE * largest for value in values]
    numbers = [f"<{_LEAST_ALIKE:g}" if small else _fixed(value / factor, digits) for value, small in zip(values, tiny, strict=True)]
    return [f"{number} {label}".rstrip() for number in numbers]


def format_range(least: float, most: float, unit: str, digits: int = 3, *, as_of: float | None = None) -> str:
    """Return a range as text with its unit once: that of a value beside which it stands, where one is given.

    Examples
    --------
    >>> format_range(104.0, 123.6, "s"), format_range(7.94, 9.6, "s"), format_range(104.0, 123.6, "s", as_of=112.0)
    ('1.73 to 2.06 min', '7.94 to 9.6 s', '104 to 124 s')
    """
    low, high = format_alike((least, most), unit, digits, as_of=as_of)
    return f"{low.partition(' ')[0]} to {high}"


def _fixed(value: float, digits: int) -> str:
    """Return a number with some significant digits and without an exponent."""
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def line_rate(bytes_per_s: float) -> str:
    """Return the rate of an adapter or a link in bits, as people write it.

    Examples
    --------
    >>> line_rate(5e10), line_rate(312.5e6)
    ('400 Gbit/s', '2.5 Gbit/s')
    """
    return f"{bytes_per_s / _BIT / 1e9:.12g} Gbit/s"


@lru_cache(maxsize=1024)
def exact_quantity(value: float, unit: str) -> str:
    """Return the shortest text that :func:`parse_quantity` reads back as the same float."""
    for digits in range(3, _ROUND_TRIP_DIGITS):
        text = _formatted(value, unit, digits)
        if _parsed(text, unit) == value:
            return text
    form = _UNITS[unit]
    return f"{value / form.label_factor!r} {form.label}".strip()


def _as_text(text: object, form: _Unit) -> str:
    # bool is an int to Python, yet `true` is never a quantity.
    if isinstance(text, int | float) and not isinstance(text, bool):
        return repr(text)
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise ScenarioError(f"{_show(text)} is not {form.what}", hint=f"write it such as {form.such}")
    return text.strip().replace("µ", "u").replace("μ", "u")


def _checked(value: float, written: str, form: _Unit, *, whole: bool) -> float:
    if not math.isfinite(value):
        raise ScenarioError(f"{written} is not a finite number")
    if value < 0:
        raise ScenarioError(f"{written} is negative", hint=f"write {form.what} such as {form.such}")
    if whole and value != round(value):
        raise ScenarioError(f"{written} is not a whole number")
    return value


def _show(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "an empty value", True: "true", False: "false"}[value]
    shown = f"'{value}'" if isinstance(value, str) else repr(value)
    return shortened(shown, _LONGEST_TEXT)


def _format_time(value: float, digits: int) -> str:
    size = abs(value)
    for limit, factor, label in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h"), (2 * YEAR_S, 86400.0, "days")):
        if size < limit:
            return _render(value / factor, label, _SMALL if label == "s" else "", digits)
    return _render(value / YEAR_S, "years", "", digits)


def _render(value: float, label: str, prefixes: str, digits: int) -> str:
    # Half a byte is "0.5 B": quantiphy would write "500e-3 B" where it has no prefix for so little.
    too_small = 0 < abs(value) < 1 and "m" not in prefixes
    if not prefixes or too_small:
        return f"{value:.{digits}g} {label}" if abs(value) < 10**digits else f"{value:.0f} {label}"
    return _number_class(prefixes)(value, label).render(form="si", prec=digits - 1)


@lru_cache
def _number_class(prefixes: str) -> type[Quantity]:
    # A class of its own: quantiphy keeps preferences on the class, and the user's own quantities must not change.
    # Imported here because this module is reachable from `import clustersim`, which has to stay light.
    from quantiphy import Quantity

    class Number(Quantity):
        pass

    Number.set_prefs(
        input_sf=prefixes or "Q",
        output_sf=prefixes.replace("K", "") or "Q",
        known_units="min mins minute minutes",
        keep_components=True,
    )
    return Number
