"""Words, numbers and signs of an expression, and the unit of measure of a number, so that seconds are not compared with bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.errors import ScenarioError
from clustersim.units.quantity import parse_quantity

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


LONGEST: Final = 1000
"""Characters of an expression."""
WORDS: Final = ("and", "or", "not")
COMPARISONS: Final = ("<=", ">=", "==", "!=", "<", ">")

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<sign><=|>=|==|!=|[-+*/()<>]))"
)
_UNIT: Final = re.compile(r"\s*(%|[A-Za-zµμ$]+(?:/[A-Za-z]+)?(?![\w.(])|[A-Za-zµμ$]+(?![\w.(]))")
_EXAMPLES: Final = ("s", "min", "h", "days", "GB", "GiB", "GB/s", "TFLOP/s", "W", "kWh", "USD", "USD/h", "kg", "%")
_SLIPS: Final = {
    "=": "write == to compare",
    "&": "write 'and'",
    "|": "write 'or'",
    "!": "write 'not'",
    "^": "powers are not known; multiply",
    "%": "a percentage follows its number, such as 40 %",
    "≤": "write <=",
    "≥": "write >=",
}


class ExpressionError(ScenarioError):
    """An expression that cannot be read, and where in its text.

    Parameters
    ----------
    message, hint
        As for :class:`clustersim.errors.ScenarioError`.
    at
        Characters before the mistake.
    """

    def __init__(self, message: str, *, hint: str, at: int) -> None:
        super().__init__(message, hint=hint)
        self.offset = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One number with its unit, one name, word or sign."""

    kind: Literal["number", "name", "word", "sign", "end"]
    text: str
    at: int
    value: float = 0.0
    """Value of a number, in SI units where it has a unit."""
    measure: Measure | None = None
    """Measure of a number; None without a unit."""


def tokens_of(text: str) -> list[Token]:
    """Return the parts of an expression, and one for its end.

    Raises
    ------
    ExpressionError
        At a character that means nothing, or a unit that does not exist.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"the expression has {len(text)} characters", hint=f"write at most {LONGEST}", at=0)
    found: list[Token] = []
    place = 0
    while text[place:].strip():
        matched = _TOKEN.match(text, place)
        if matched is None:
            at = place + len(text[place:]) - len(text[place:].lstrip())
            hint = _SLIPS.get(text[at], "write metrics, numbers with units, + - * /, comparisons, and, or, not, and parentheses")
            raise ExpressionError(f"{text[at]!r} means nothing here", hint=hint, at=at)
        kind = matched.lastgroup or "sign"
        at, place = matched.start(kind), matched.end()
        written = matched.group(kind)
        if kind == "number":
            token, place = _number(text, at, place)
        elif kind == "name":
            token = Token(kind="word" if written in WORDS else "name", text=written, at=at)
        else:
            token = Token(kind="sign", text=written, at=at)
        found.append(token)
    return [*found, Token(kind="end", text="", at=len(text.rstrip()))]


def _number(text: str, at: int, end: int) -> tuple[Token, int]:
    """Return a number with the unit that follows it, if one does, and where it ends."""
    digits = text[at:end]
    unit = _UNIT.match(text, end)
    if unit is None or unit.group(1) in WORDS:
        return Token(kind="number", text=digits, at=at, value=float(digits)), end
    word = unit.group(1)
    if word == "%":
        return Token(kind="number", text=text[at : unit.end()], at=at, value=float(digits) / 100, measure=PLAIN), unit.end()
    for name, measure in KINDS.items():
        try:
            value = parse_quantity(f"{digits} {word}", name)
        except ScenarioError:
            continue
        whole = text[at : unit.end()]
        if name == "count":
            # 40M is a number without a unit: of GPU hours, tokens or whatever it meets.
            return Token(kind="number", text=whole, at=at, value=value), unit.end()
        return Token(kind="number", text=whole, at=at, value=value * measure.scale, measure=Measure(powers=measure.powers)), unit.end()
    hint = did_you_mean(word, WORDS) or choices_hint(word, _EXAMPLES, longest=len(_EXAMPLES))
    raise ExpressionError(f"'{word}' is not a unit", hint=hint, at=unit.start(1))
