"""A base, named changes to it, and the number by which they are judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.sweep.axis import split_values
from clustersim.apps.sweep.point import Base, PointOutcome, evaluate
from clustersim.apps.sweep.results import sweep_metrics
from clustersim.config.checks import given_by, lacking
from clustersim.config.machine import hardware_of
from clustersim.config.overriding import parse_override
from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, Quantity, parse_condition, parse_quantity_of
from clustersim.workloads.reading.model_spec import load_model

BASE: Final = "base"
"""Name of the scenario as it is."""
METRIC: Final = "tokens_per_s"
SERVED_METRIC: Final = "output_tokens_per_s_per_gpu"
"""Default metric of serving scenarios."""
_RATES: Final = re.compile(
    r"(samples|tokens|requests|(output|total)_tokens)_per_s(_per_gpu)?|tflops_per_gpu|[mh]fu|goodput\..*goodput_fraction"
    r"|slo\.(attained_fraction|goodput_requests_per_s)|kv\.(capacity_tokens|prefix_hit_fraction)"
)
"""Figures of which more is better; of all others less is."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,40}")
_SIGN: Final = re.compile(r"\s*[A-Za-z_][\w.-]*\s*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Some changes to the base, under a name."""

    name: str
    changes: Mapping[str, Data]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Quantity that cases are judged by."""

    quantity: Quantity
    higher_is_better: bool

    def of(self, outcome: PointOutcome) -> float | None:
        """Return the number; None where it has no value."""
        if not set(self.quantity.names) <= outcome.figures.keys():
            return None
        return self.quantity.value(outcome.figures)

    def better(self, one: float, other: float) -> bool:
        """Return whether one is better than another."""
        return one > other if self.higher_is_better else one < other


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """Decision to be made: between which cases, by which number, under which conditions."""

    base: Base
    cases: tuple[Case, ...]
    """The base first."""
    number: Objective
    where: tuple[Condition, ...] = ()

    def outcome(self, case: Case, values: Mapping[str, Data] | None = None) -> PointOutcome:
        """Return what comes of a case, with some further values on top."""
        return evaluate(self.base, {**case.changes, **(values or {})})

    def judged(self, outcome: PointOutcome) -> float | None:
        """Return the number of a case that may be chosen: one that runs, fits and meets every condition."""
        if outcome.status != "ok" or self.refusal(outcome):
            return None
        return self.number.of(outcome)

    def refusal(self, outcome: PointOutcome) -> str:
        """Return why a case may not be chosen; empty if it may."""
        if outcome.status != "ok":
            return outcome.reason
        for condition in self.where:
            if not set(condition.names) <= outcome.figures.keys():
                return f"'{condition.text}' has no value"
            if not condition.holds(outcome.figures):
                return f"{condition.text} is false"
        return "" if self.number.of(outcome) is not None else f"'{self.number.quantity.text}' has no value"

    def best(self, numbers: Mapping[str, float | None]) -> str | None:
        """Return the name of the best case, the earlier one of equals; None where none may be chosen."""
        found: str | None = None
        for name, number in numbers.items():
            if number is None:
                continue
            leader = None if found is None else numbers[found]
            if leader is None or self.number.better(number, leader):
                found = name
        return found


def parse_case(text: str) -> Case:
    """Return what ``name:key=value,key=value`` asks for.

    Raises
    ------
    ScenarioError
        When it is something else.

    Examples
    --------
    >>> case = parse_case("wide:strategy.tp=8,strategy.placement=[tp, dp, pp, cp, ep]")
    >>> case.name, list(case.changes)
    ('wide', ['strategy.tp', 'strategy.placement'])
    """
    place = Place(file=f"--case {text}" if len(text) < 80 else "--case")
    name, colon, changes = text.partition(":")
    if colon and name.strip() == BASE:
        raise ScenarioError(f"'{BASE}' is the scenario itself", hint="choose another name", place=place)
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
    return Case(name=name.strip(), changes={".".join(each.path): each.value for each in overrides})


def matter_of(base: Base, cases: Sequence[Case], *, metric: str = METRIC, where: Sequence[str] = ()) -> Matter:
    """Return what is to be decided, after a look at all of it.

    Raises
    ------
    ScenarioError
        When a case cannot be read, two have one name, or a condition or the number names a metric that has no value here.
    """
    names: list[str] = [BASE]
    for case in cases:
        if case.name in names:
            raise ScenarioError(f"two cases are named '{case.name}'", field="--case", hint="name each differently")
        names.append(case.name)
    specs = [base.any_scenario({}).spec]
    for case in cases:
        try:
            scenario = base.any_scenario(case.changes)
            # A name that does not exist is a slip; a plan that cannot run is an answer.
            hardware_of(scenario.spec.cluster, scenario.document)
            load_model(scenario.document.data.get("model"), document=scenario.document)
            specs.append(scenario.spec)
        except ScenarioError as error:
            raise ScenarioError(error.message, field=error.field, hint=error.hint, place=Place(file=f"case {case.name}")) from error
    metric = SERVED_METRIC if base.serves and metric == METRIC else metric
    givens = [given_by(spec) for spec in specs]
    given = {key: any(each[key] for each in givens) for key in givens[0]}
    metrics = sweep_metrics(serves=base.serves)
    try:
        quantity = parse_quantity_of(metric, metrics)
    except ExpressionError as error:
        raise ScenarioError(error.message, field="--metric", hint=error.hint) from error
    _refuse(lacking(quantity.names, given), "--metric")
    conditions: list[Condition] = []
    for text in where:
        try:
            conditions.append(parse_condition(text, metrics))
        except ExpressionError as error:
            raise ScenarioError(error.message, field="--where", hint=error.hint) from error
        _refuse(lacking(conditions[-1].names, given), "--where")
    number = Objective(quantity=quantity, higher_is_better=_RATES.fullmatch(metric.strip()) is not None)
    return Matter(base=base, cases=(Case(name=BASE, changes={}), *cases), number=number, where=tuple(conditions))


def _refuse(error: ScenarioError | None, field: str) -> None:
    if error is not None:
        raise ScenarioError(error.message, field=field, hint=error.hint)
