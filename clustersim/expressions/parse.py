"""Read an expression, check its units, and evaluate it on named values."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.expressions.lexer import COMPARISONS, ExpressionError, Token, tokens_of
from clustersim.expressions.measures import PLAIN, Measure, measure_of_key

Values = Mapping[str, float | bool]
"""Metrics by name, each in the unit of its name."""
Evaluate = Callable[[Values], float]

_SLIP: Final = 0.85
"""Likeness from which on a name is taken for another one written wrongly."""
DEEPEST: Final = 50
"""Parentheses and signs inside each other."""

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of an expression: a number of some measure, or a condition."""

    evaluate: Evaluate
    """In SI units; a condition gives 0 or 1."""
    at: int
    measure: Measure | None = None
    """None for a number without a unit, which takes that of the other operand."""
    condition: bool = False
    left: tuple[Evaluate, float] | None = None
    """Left side of a single comparison, and the size of its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """An expression that holds or does not."""

    text: str
    names: tuple[str, ...]
    """Metrics of the expression, in the order of their first use."""
    _root: _Part

    def holds(self, values: Values) -> bool:
        """Return whether it holds for these values."""
        return bool(self._root.evaluate(values))

    def value(self, values: Values) -> float | None:
        """Return the left side of a single comparison, in the unit of its metric; None for anything else."""
        if self._root.left is None:
            return None
        evaluate, scale = self._root.left
        return evaluate(values) / scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An expression that is a number, such as something to minimise."""

    text: str
    names: tuple[str, ...]
    measure: Measure
    _root: _Part

    def value(self, values: Values) -> float:
        """Return its value in the unit of its metrics; infinite where it divides by zero."""
        return self._root.evaluate(values) / self.measure.scale


def parse_condition(text: str, metrics: Mapping[str, bool]) -> Condition:
    """Return the condition that a text states.

    A number without a unit counts in the unit of the metric that it is compared with or added to, which the name of the metric ends in.
    ``not`` binds closer than ``and``, and that closer than ``or``; comparisons may form a chain, such as ``0.3 <= mfu <= 0.6``.

    Parameters
    ----------
    text
        Such as ``memory_fraction <= 0.92 and step_time_s < 750 ms``.
    metrics
        Every name that may stand there, and whether it is true or false and not a number.

    Raises
    ------
    ExpressionError
        With the place of the mistake, and what would be right.

    Examples
    --------
    >>> parse_condition("step_time_s < 750 ms", {"step_time_s": False}).holds({"step_time_s": 0.5})
    True
    """
    reader = _ExpressionReader(text, metrics)
    root = reader.read()
    if not root.condition:
        raise ExpressionError(f"{text!r} compares nothing", hint="write a condition, such as 'memory_fraction <= 0.92'", at=root.at)
    return Condition(text=text, names=reader.names, _root=root)


def parse_quantity_of(text: str, metrics: Mapping[str, bool]) -> Quantity:
    """Return the number of an expression, such as ``cost.step.usd / tokens_per_s``; parameters and errors as for a condition."""
    reader = _ExpressionReader(text, metrics)
    root = reader.read()
    if root.condition:
        raise ExpressionError(f"{text!r} is a condition", hint="write a number, such as 'step_time_s'", at=root.at)
    return Quantity(text=text, names=reader.names, measure=root.measure or PLAIN, _root=root)


class _ExpressionReader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, metrics: Mapping[str, bool]) -> None:
        self._tokens = tokens_of(text)
        self._text = text
        self._metrics = metrics
        self._next = 0
        self._depth = 0
        self._names: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def read(self) -> _Part:
        """Return the whole expression."""
        if self._token.kind == "end":
            raise ExpressionError("the expression is empty", hint="write a condition, such as 'memory_fraction <= 0.92'", at=0)
        whole = self._either()
        # The narrowed type of the first token says nothing about the one that is next now.
        left_over = self._tokens[self._next]
        if left_over.kind != "end":
            raise self._unexpected()
        return whole

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> Token | None:
        token = self._token
        if token.kind in {"sign", "word"} and token.text in texts:
            self._next += 1
            return token
        return None

    def _either(self) -> _Part:
        return self._joined("or", self._both, any)

    def _both(self) -> _Part:
        return self._joined("and", self._negated, all)

    def _joined(self, word: str, inner: Callable[[], _Part], join: Callable[[Iterable[object]], bool]) -> _Part:
        parts = [inner()]
        while taken := self._take(word):
            parts = [_condition(part, taken) for part in (*parts, inner())]
        if len(parts) == 1:
            return parts[0]
        return _Part(evaluate=lambda values: float(join(part.evaluate(values) for part in parts)), at=parts[0].at, condition=True)

    def _negated(self) -> _Part:
        taken = self._take("not")
        if taken is None:
            return self._compared()
        with self._deeper(taken):
            inner = _condition(self._negated(), taken)
        return _Part(evaluate=lambda values: float(not inner.evaluate(values)), at=taken.at, condition=True)

    def _compared(self) -> _Part:
        parts, signs = [self._sum()], list[Token]()
        while taken := self._take(*COMPARISONS):
            signs.append(taken)
            parts.append(self._sum())
        if not signs:
            return parts[0]
        pairs = [(_COMPARE[sign.text], *_alike(left, right, sign)) for sign, left, right in zip(signs, parts, parts[1:], strict=False)]
        first = pairs[0][1]
        scale = first.measure.scale if first.measure else 1.0
        return _Part(
            evaluate=lambda values: float(all(compare(left.evaluate(values), right.evaluate(values)) for compare, left, right in pairs)),
            at=parts[0].at,
            condition=True,
            left=(first.evaluate, scale) if len(signs) == 1 else None,
        )

    def _sum(self) -> _Part:
        part = self._product()
        while taken := self._take("+", "-"):
            left, right = _alike(part, self._product(), taken)
            part = _arithmetic(operator.add if taken.text == "+" else operator.sub, left, right, left.measure)
        return part

    def _product(self) -> _Part:
        part = self._signed()
        while taken := self._take("*", "/"):
            left, right = _number(part, taken), _number(self._signed(), taken)
            power = 1 if taken.text == "*" else -1
            both_bare = left.measure is None and right.measure is None
            measure = None if both_bare else (left.measure or PLAIN).times(right.measure or PLAIN, power)
            part = _arithmetic(operator.mul if taken.text == "*" else _divided, left, right, measure)
        return part

    def _signed(self) -> _Part:
        taken = self._take("-")
        if taken is None:
            return self._atom()
        with self._deeper(taken):
            inner = _number(self._signed(), taken)
        return _Part(evaluate=lambda values: -inner.evaluate(values), at=taken.at, measure=inner.measure)

    def _atom(self) -> _Part:
        token = self._token
        if opened := self._take("("):
            with self._deeper(opened):
                inner = self._either()
            if self._take(")") is None:
                raise ExpressionError("a parenthesis is not closed", hint="add ')'", at=opened.at)
            return inner
        if token.kind == "number":
            self._next += 1
            number = token.value
            return _Part(evaluate=lambda _: number, at=token.at, measure=token.measure)
        if token.kind == "name":
            self._next += 1
            return self._metric(token)
        raise self._unexpected()

    def _metric(self, token: Token) -> _Part:
        name = token.text
        if name not in self._metrics:
            if name.lower() in {"inf", "infinity", "nan"}:
                raise ExpressionError(f"'{name}' is not a number", hint="leave the condition out, or write a number", at=token.at)
            raise ExpressionError(f"there is no metric '{name}'", hint=metric_hint(name, self._metrics), at=token.at)
        self._names[name] = None
        if self._metrics[name]:
            return _Part(evaluate=lambda values: float(values[name]), at=token.at, condition=True)
        measure = measure_of_key(name)
        return _Part(evaluate=lambda values: values[name] * measure.scale, at=token.at, measure=measure)

    def _unexpected(self) -> ExpressionError:
        token = self._token
        before = self._tokens[self._next - 1] if self._next else None
        if token.kind == "end":
            return ExpressionError("something is missing at the end", hint="write a metric or a number", at=token.at)
        if token.text == ")":
            return ExpressionError("')' closes nothing", hint="remove it, or write what it should close", at=token.at)
        if before is not None and before.kind in {"number", "name"} and token.kind in {"number", "name"}:
            hint = "write an operator between the two: + - * /, a comparison, and, or"
            near = did_you_mean(token.text, ("and", "or", "not")) if token.kind == "name" else None
            return ExpressionError(f"'{token.text}' follows '{before.text}' without an operator", hint=near or hint, at=token.at)
        return ExpressionError(f"'{token.text}' does not fit here", hint="write a metric or a number", at=token.at)

    @contextmanager
    def _deeper(self, token: Token) -> Generator[None]:
        """Count how deep parentheses and signs are nested."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(f"more than {DEEPEST} parentheses or signs inside each other", hint="write it flatter", at=token.at)
        yield
        self._depth -= 1


def metric_hint(name: str, metrics: Iterable[str]) -> str:
    """Return the metric that was meant: a slip of the pen away, of the same last part, or nearest in letters; else all short ones."""
    known = list(metrics)
    slip = difflib.get_close_matches(name, known, n=1, cutoff=_SLIP)
    if slip:
        return f"did you mean '{slip[0]}'?"
    last = name.rpartition(".")[2]
    same = [each for each in known if each.rpartition(".")[2] == last]
    if same:
        return f"did you mean {' or '.join(repr(each) for each in same[:3])}?"
    return did_you_mean(name, known) or choices_hint(name, [each for each in known if "." not in each], longest=30)


def _divided(left: float, right: float) -> float:
    if right == 0:
        return float("nan") if left == 0 else float("inf") if left > 0 else float("-inf")
    return left / right


def _arithmetic(work: Callable[[float, float], float], left: _Part, right: _Part, measure: Measure | None) -> _Part:
    return _Part(evaluate=lambda values: work(left.evaluate(values), right.evaluate(values)), at=left.at, measure=measure)


def _number(part: _Part, sign: Token) -> _Part:
    if part.condition:
        raise ExpressionError(f"'{sign.text}' wants numbers on both sides", hint="this side is true or false", at=part.at)
    return part


def _condition(part: _Part, word: Token) -> _Part:
    if not part.condition:
        raise ExpressionError(
            f"'{word.text}' wants conditions on both sides", hint="compare this with something, such as '> 0'", at=part.at
        )
    return part


def _alike(left: _Part, right: _Part, sign: Token) -> tuple[_Part, _Part]:
    """Return both sides of a sum or comparison in SI units; a number without a unit takes that of the other side."""
    for side in (left, right):
        _number(side, sign)
    if left.measure is None and right.measure is None:
        return left, right
    left, right = _in_unit_of(left, right.measure), _in_unit_of(right, left.measure)
    if left.measure and right.measure and left.measure.powers != right.measure.powers:
        message = f"'{sign.text}' has {left.measure} on its left side and {right.measure} on its right side"
        raise ExpressionError(message, hint="write both in the same kind of unit", at=sign.at)
    return left, right


def _in_unit_of(part: _Part, measure: Measure | None) -> _Part:
    if part.measure is not None or measure is None:
        return part
    scale, bare = measure.scale, part.evaluate
    return _Part(evaluate=lambda values: bare(values) * scale, at=part.at, measure=measure)
