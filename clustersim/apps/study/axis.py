"""The values of one key: ``1,2,4``, ``1..8``, ``1..64 step 8``, ``1..64 times 2``, with units where the key has one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

EXAMPLE: Final = "write such as strategy.tp=1,2,4 or strategy.tp=1..64 times 2"
_KEY: Final = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
_LONGEST: Final = 10_000
_NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_UNIT: Final = r"(?:[A-Za-zµμ$%]+(?:/[A-Za-z]+)?|/[A-Za-z]+)"
_RANGE: Final = re.compile(
    rf"(?P<first>{_NUMBER})\s*(?P<unit>{_UNIT})?\s*\.\.\s*(?P<last>{_NUMBER})\s*(?P<last_unit>(?!step\b|times\b){_UNIT})?"
    rf"(?:\s+(?P<way>step|times)\s+(?P<by>{_NUMBER})\s*(?P<by_unit>{_UNIT})?)?"
)
_OPENING: Final = "[{("
_CLOSING: Final = "]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """One value, or a range of numbers that is not written out."""

    first: Data
    count: int = 1
    by: Decimal = Decimal(1)
    multiplies: bool = False
    """Each is ``by`` times the one before it, not ``by`` more."""
    unit: str = ""

    def __iter__(self) -> Iterator[Data]:
        """Yield the values in order."""
        if self.count == 1 and not self.unit:
            yield self.first
            return
        number = Decimal(str(self.first))
        for _ in range(self.count):
            yield _written(number, self.unit)
            number = number * self.by if self.multiplies else number + self.by


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A key of the scenario and the values that it takes."""

    key: str
    parts: tuple[Values, ...]
    place: Place

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(part.count for part in self.parts)

    def values(self) -> list[Data]:
        """Return all values.

        Raises
        ------
        ScenarioError
            When one of them stands there twice.
        """
        found: dict[str, Data] = {}
        for part in self.parts:
            for value in part:
                text = canonical(value)
                if text in found:
                    raise ScenarioError(f"{text} stands there twice", field=self.key, hint="name each value once", place=self.place)
                found[text] = value
        return list(found.values())


def parse_axis(text: str) -> Axis:
    """Return the key and values of ``key=values``.

    Values are separated by commas; each is read as YAML, or is a range: ``1..8`` counts by one, ``1..64 step 8`` by eight, and
    ``1..64 times 2`` doubles. Both ends belong to a range. A unit stands at its end: ``100..400 Gbit/s step 100``.

    Raises
    ------
    ScenarioError
        When there is no key, no value, or a range that leads nowhere.

    Examples
    --------
    >>> parse_axis("strategy.tp=1..8 times 2").values()
    [1, 2, 4, 8]
    >>> parse_axis("cluster.nics.bandwidth=100..300 Gbit/s step 100").values()
    ['100 Gbit/s', '200 Gbit/s', '300 Gbit/s']
    >>> parse_axis("strategy.schedule=gpipe, 1f1b").values()
    ['gpipe', '1f1b']
    """
    place = Place(file=f"--over {text}" if len(text) < 80 else "--over")
    key, sign, values = text.partition("=")
    if not sign or not _KEY.fullmatch(key.strip()) or not values.strip() or len(text) > _LONGEST:
        raise ScenarioError("is not key=values", hint=EXAMPLE, place=place)
    return axis_of(key.strip(), [_values(item, place) for item in split_values(values)], place)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """A key and the ends between which it may have any value."""

    key: str
    low: float
    high: float
    unit: str = ""

    def value(self, number: float, *, whole: bool = False) -> Data:
        """Return a number in between as a scenario has it."""
        short = float(f"{number:.6g}")
        if whole:
            return round(number)
        return _written(Decimal(repr(short)), self.unit)


def parse_span(text: str, option: str) -> KeyRange:
    """Return the key and range of ``key=low..high``, such as ``cluster.nics.bandwidth=100..400 Gbit/s``.

    Parameters
    ----------
    option
        By which it was given, for messages.

    Raises
    ------
    ScenarioError
        When it is something else.
    """
    place = Place(file=f"{option} {text}" if len(text) < 80 else option)
    key, _, values = text.partition("=")
    found = _RANGE.fullmatch(values.strip())
    if not _KEY.fullmatch(key.strip()) or found is None or found["way"]:
        raise ScenarioError("is not key=low..high", hint="write such as cluster.nics.bandwidth=100..400 Gbit/s", place=place)
    whole = _range(values.strip(), found, place)
    low, high = float(found["first"]), float(found["last"])
    if low == high:
        raise ScenarioError("both ends are the same", hint="write a smaller and a larger number", place=place)
    return KeyRange(key=key.strip(), low=low, high=high, unit=whole.unit)


def axis_from_data(key: str, data: Data, place: Place) -> Axis:
    """Return the axis that stands in a file: a list of values and ranges, or a text as on the command line.

    Raises
    ------
    ScenarioError
        When the key is no key of a scenario, or there is no value.
    """
    if not _KEY.fullmatch(key):
        raise ScenarioError(f"'{key}' is not a key of a scenario", hint="write such as strategy.tp", place=place)
    if isinstance(data, str):
        return axis_of(key, [_values(item, place) for item in split_values(data)], place)
    if isinstance(data, list):
        parts = [_values(item, place) if isinstance(item, str) and _RANGE.fullmatch(item.strip()) else Values(first=item) for item in data]
        return axis_of(key, parts, place)
    return axis_of(key, [Values(first=data)], place)


def axis_of(key: str, parts: Sequence[Values], place: Place) -> Axis:
    """Return an axis that has at least one value.

    Raises
    ------
    ScenarioError
        When it has none.
    """
    if not parts:
        raise ScenarioError("there is no value", field=key, hint=EXAMPLE, place=place)
    return Axis(key=key, parts=tuple(parts), place=place)


def canonical(value: object) -> str:
    """Return data as text that is the same for the same data."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def value_text(value: object) -> str:
    """Return a value as it is written on the command line."""
    return value if isinstance(value, str) else canonical(value)


def split_values(text: str) -> list[str]:
    """Return what stands between commas, apart from those inside brackets and quotes."""
    parts, depth, quote, begin = list[str](), 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _values(text: str, place: Place) -> Values:
    written = text.strip()
    found = _RANGE.fullmatch(written)
    if found is not None:
        return _range(written, found, place)
    if ".." in written and re.match(_NUMBER, written):
        raise ScenarioError(f"'{written}' is not a range", hint="write such as 1..8, 1..64 step 8, or 1..64 times 2", place=place)
    try:
        read = read_yaml(written, str(place), written.splitlines()) if written else None
    except ScenarioError as error:
        raise ScenarioError(error.message, hint=error.hint, place=place) from error
    if read is None:
        raise ScenarioError("a value is empty", hint=EXAMPLE, place=place)
    return Values(first=read[0])


def _range(text: str, found: re.Match[str], place: Place) -> Values:
    first, last = Decimal(found["first"]), Decimal(found["last"])
    units = {unit for unit in (found["unit"], found["last_unit"], found["by_unit"]) if unit}
    if len(units) > 1:
        raise ScenarioError(f"'{text}' has two units", hint="write the same unit at both ends", place=place)
    by = Decimal(found["by"] or "1")
    multiplies = found["way"] == "times"
    if last < first:
        raise ScenarioError(f"the range '{text}' ends before it begins", hint="write the smaller number first", place=place)
    if multiplies and (by <= 1 or first <= 0):
        raise ScenarioError(f"'{text}' never ends", hint="multiply a number above 0 by one above 1", place=place)
    if by <= 0:
        raise ScenarioError(f"'{text}' never ends", hint="step by more than 0", place=place)
    count = _multiples(first, last, by) if multiplies else int((last - first) / by) + 1
    unit = next(iter(units), "")
    return Values(first=_plain(first), count=count, by=by, multiplies=multiplies, unit=unit)


def _multiples(first: Decimal, last: Decimal, by: Decimal) -> int:
    # The logarithm may be a little off where the range ends exactly on a value.
    times = max(0, int((last / first).ln() / by.ln()) - 1)
    while first * by ** (times + 1) <= last:
        times += 1
    return times + 1


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def _written(number: Decimal, unit: str) -> Data:
    value = _plain(number)
    return f"{value} {unit}" if unit else value
