"""Words, numbers and signs of an expression, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.errors import ScenarioError
from clustersim.expressions.measures import KINDS, PLAIN, Measure
from clustersim.units.quantity import parse_quantity

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
