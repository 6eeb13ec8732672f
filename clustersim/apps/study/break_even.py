"""At which value of a key two cases are equally good: a scan, and bisection where the best one changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from math import sqrt
from typing import Final

from clustersim.apps.study.axis import KeyRange
from clustersim.apps.study.what_if_cases import WhatIfQuestion
from clustersim.errors import ScenarioError

N_SCANNED: Final = 9
"""Values that are looked at first; what changes and changes back between two of them is not seen."""
CLOSE: Final = 1e-3
"""Relative width of what bisection ends with."""
_EQUAL: Final = ""
"""Stands for the name of the best case where two are equally good."""
_WIDE: Final = 8.0
"""From which ratio of the ends on values are scanned by ratio and not by difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Between two values the best case changes."""

    below: float
    above: float
    best_below: str | None
    """None where none can be chosen."""
    best_above: str | None
    undecided: tuple[float, float] | None = None
    """Ends of the values about it at which the best case is within the error bars of another, of those looked at; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Values at which the best case changes."""

    span: KeyRange
    best_at_low: str | None
    crossings: tuple[Crossing, ...]
    """By value; none where one is best throughout."""
    undecided: tuple[float, float] | None
    """Least and most value at which the best case is within the error bars of another, of those looked at; None without any."""


def break_even(question: WhatIfQuestion, span: KeyRange) -> BreakEven:
    """Return where the best case changes while a key, which no case sets, goes from one value to another."""
    whole = _whole(question, span)
    known: dict[float, str | None] = {}
    near: dict[float, bool] = {}

    def best(number: float) -> str | None:
        if number not in known:
            rows = question.rows({span.key: span.value(number, whole=whole)})
            numbers, found = question.numbers(rows), question.best(rows)
            equal = found is not None and list(numbers.values()).count(numbers[found]) > 1
            known[number] = _EQUAL if equal else found
            near[number] = equal or bool(question.objective.undecided(question.objective.ranked(rows)))
        return known[number]

    everywhere = _scanned(span, whole=whole)
    # Where two are equal nothing changes yet: it does between the values on either side.
    scanned = [number for number in everywhere if best(number) != _EQUAL] or everywhere
    crossings = [each for low, high in pairwise(scanned) for each in _between(best, low, high, span, whole=whole)]
    crossings = [replace(each, undecided=_undecided(each, near)) for each in crossings]
    best_at_low = best(scanned[0]) or None
    return BreakEven(span=span, best_at_low=best_at_low, crossings=tuple(crossings), undecided=_ends([each for each in near if near[each]]))


def _undecided(crossing: Crossing, near: Mapping[float, bool]) -> tuple[float, float] | None:
    """Return the ends of the undecided values about a crossing, of all that were looked at."""
    below = takewhile(near.__getitem__, sorted((each for each in near if each <= crossing.below), reverse=True))
    above = takewhile(near.__getitem__, sorted(each for each in near if each >= crossing.above))
    return _ends([*below, *above])


def _ends(found: Sequence[float]) -> tuple[float, float] | None:
    return (min(found), max(found)) if found else None


def _whole(question: WhatIfQuestion, span: KeyRange) -> bool:
    """Return whether a key takes whole numbers only."""
    middle = (span.low + span.high) / 2
    fraction = middle if middle != round(middle) else middle + 0.5
    try:
        question.base.any_scenario({span.key: span.value(fraction)})
    except ScenarioError:
        return not span.unit and span.low == round(span.low) and span.high == round(span.high)
    return False


def _scanned(span: KeyRange, *, whole: bool) -> list[float]:
    steps = N_SCANNED - 1
    if span.low > 0 and span.high / span.low >= _WIDE:
        ratio = span.high / span.low
        values = [span.low * ratio ** (step / steps) for step in range(steps)]
    else:
        values = [span.low + (span.high - span.low) * step / steps for step in range(steps)]
    values.append(span.high)
    return sorted({float(round(value)) for value in values}) if whole else values


def _between(best: Callable[[float], str | None], low: float, high: float, span: KeyRange, *, whole: bool) -> Iterator[Crossing]:
    """Yield where the best case changes between two values; a third one may be the best in between."""
    while best(low) != best(high):
        crossing = _narrowed(best, low, high, span, whole=whole)
        yield crossing
        low = high if crossing.best_above == best(high) else crossing.above


def _narrowed(best: Callable[[float], str | None], low: float, high: float, span: KeyRange, *, whole: bool) -> Crossing:
    first, last = best(low), best(high)
    while (high - low > 1) if whole else (high - low > CLOSE * max(abs(low), abs(high))):
        middle = sqrt(low * high) if span.low > 0 and not whole else (low + high) / 2
        middle = float(round(middle)) if whole else middle
        if best(middle) == _EQUAL:
            return Crossing(below=middle, above=middle, best_below=first, best_above=last)
        if best(middle) == first:
            low = middle
        else:
            high, last = middle, best(middle)
    return Crossing(below=low, above=high, best_below=first, best_above=last)
