"""A base, named changes to it, and the number by which they are judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from math import sqrt
from typing import Final

from clustersim.apps.study.axis import KeyRange, split_values
from clustersim.apps.study.objective import AskedExpression, Objective
from clustersim.apps.study.point import Base, Point, ResultRow, evaluated, figure_names, override_of
from clustersim.apps.study.study_file import Study
from clustersim.config.checks import given_by
from clustersim.config.load import Scenario
from clustersim.config.machine import hardware_of
from clustersim.config.overriding import apply_overrides, parse_override
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.measure.deciding import more_is_better
from clustersim.workloads.reading.model_spec import load_model

BASE: Final = "base"
"""Name of the scenario as it is."""
METRIC: Final = "tokens_per_s"
SAMPLES: Final = "samples_per_s"
"""Metric of models that are not trained on sequences."""
SERVED_METRIC: Final = "output_tokens_per_s_per_gpu"
"""Default metric of serving scenarios whose requests wait for answers, or come all at once."""
RATED_METRIC: Final = "e2e_s.mean"
"""The same where requests come at a rate of their own, which throughput does not exceed."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,40}")
_SIGN: Final = re.compile(r"\s*[A-Za-z_][\w.-]*\s*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfQuestion:
    """Decision to be made between cases, the base first."""

    base: Base
    cases: tuple[Point, ...]
    objective: Objective

    def rows(self, values: Mapping[str, Data] | None = None) -> tuple[ResultRow, ...]:
        """Return what comes of all cases, with some further values on top."""
        return evaluated(self.base, [replace(case, values={**case.values, **(values or {})}) for case in self.cases])

    def numbers(self, rows: Sequence[ResultRow]) -> dict[str, float | None]:
        """Return the number of each case that may be chosen, None of others."""
        return {row.point.name: self.objective.judged(row) for row in rows}

    def best(self, rows: Sequence[ResultRow]) -> str | None:
        """Return the name of the best case, the earlier one of equals; None where none may be chosen."""
        return next((row.point.name for row in self.objective.ranked(rows)), None)


def parse_case(text: str) -> Point:
    """Return what ``name:key=value,key=value`` asks for.

    Raises
    ------
    ScenarioError
        When it is something else.

    Examples
    --------
    >>> case = parse_case("wide:strategy.tp=8,strategy.placement=[tp, dp, pp, cp, ep]")
    >>> case.name, list(case.values)
    ('wide', ['strategy.tp', 'strategy.placement'])
    """
    place = Place(file=f"--case {text}" if len(text) < 80 else "--case")
    name, colon, changes = text.partition(":")
    if not colon or not _NAME.fullmatch(name.strip()) or not _SIGN.match(changes):
        raise ScenarioError("is not name:key=value,key=value", hint="write such as wide:strategy.tp=8,strategy.pp=2", place=place)
    parts: list[str] = []
    for part in split_values(changes):
        # What has no sign of its own belongs to the value before it.
        if _SIGN.match(part):
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    overrides = [parse_override(part.strip()) for part in parts]
    return case_of(name.strip(), {".".join(each.path): each.value for each in overrides}, place)


def case_of(name: str, values: Mapping[str, Data], place: Place) -> Point:
    """Return a case of some values.

    Raises
    ------
    ScenarioError
        When it has the name of the scenario itself.
    """
    if name == BASE:
        raise ScenarioError(f"'{BASE}' is the scenario itself", hint="choose another name", place=place)
    return Point(number=0, name=name, values=values)


def what_if_of(study: Study) -> WhatIfQuestion:
    """Return what is to be decided, after a look at all of it.

    Raises
    ------
    ScenarioError
        When a case cannot be read, two have one name, or a condition or the number names a metric that has no value here.
    """
    spec, base = study.spec, study.base
    if spec.grid or spec.zip:
        raise study.mistake(("grid" if spec.grid else "zip",), "a what-if has cases and no axes", "ask with sweep")
    if BASE in spec.cases:
        place = study.place("cases", BASE, key=True)
        raise ScenarioError("the scenario itself is the base", field=f"cases.{BASE}", hint="choose another name", place=place)
    cases = [
        Point(number=0, name=BASE, values={}),
        *study.named_points(),
        *(parse_case(each) if isinstance(each, str) else each for each in study.request.cases),
    ]
    names = [case.name for case in cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"two cases are named '{twice}'", field="--case", hint="name each differently")
    givens: list[dict[str, bool]] = []
    defaults: list[str] = []
    for case in cases:
        try:
            scenario = base.any_scenario(case.values)
            # A name that does not exist is a slip; a plan that cannot run is an answer.
            hardware_of(scenario.spec.cluster, scenario.document)
            defaults.append(_default_metric(scenario))
            givens.append(given_by(scenario.spec))
        except ScenarioError as error:
            if not case.values:
                raise
            raise ScenarioError(error.message, field=error.field, hint=error.hint, place=Place(file=f"case {case.name}")) from error
    given = {key: any(each[key] for each in givens) for key in givens[0]}
    metrics = figure_names(serves=base.serves)
    default = AskedExpression(text=defaults[0], field="--metric")
    asked = study.request.metric
    metric = AskedExpression(text=asked, field="--metric") if asked else study.written("metric") if spec.metric else default
    objective = Objective(
        quantity=metric.quantity(metrics, given),
        higher_is_better=more_is_better(metric.text),
        where=tuple(each.condition(metrics, given) for each in study.conditions()),
    )
    return WhatIfQuestion(base=base, cases=tuple(replace(case, number=number) for number, case in enumerate(cases)), objective=objective)


def _default_metric(scenario: Scenario | ServingScenario) -> str:
    unit = load_model(scenario.document.data.get("model"), document=scenario.document).model.unit
    if isinstance(scenario, ServingScenario):
        return SERVED_METRIC if scenario.spec.requests.arrival in {"at_once", "closed"} else RATED_METRIC
    return METRIC if unit == "sequence" else SAMPLES


def check_span(question: WhatIfQuestion, span: KeyRange, option: str) -> None:
    """Refuse a key that does not exist, or that cannot have the values at the ends.

    Raises
    ------
    ScenarioError
        Says which, and what would be right.
    """
    for number in (span.low, span.high):
        value = span.value(number)
        try:
            apply_overrides(question.base.source.document, [override_of(span.key, value)])
            question.base.any_scenario({span.key: value})
        except ScenarioError as error:
            raise ScenarioError(error.message, field=error.field, hint=error.hint, place=Place(file=f"{option} {span.key}")) from error


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
