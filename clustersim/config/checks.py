"""The ``checks`` of a scenario: conditions on the figures of its result by their dotted names, parsed and never evaluated as code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import Final, get_args, get_type_hints

from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.config.serving_scenario import ServingScenarioSpec
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, parse_condition
from clustersim.measure.cost_report import CostReport
from clustersim.measure.deciding import UNDECIDED, figures_at
from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.report.text_tables import shown

MEMORY_FRACTION: Final = "memory_fraction"
"""Peak memory over capacity: for conditions only, since the result has both."""
TIME_TO_TRAIN: Final = "time_to_train_s"
SECTIONS: Final[Mapping[str, type]] = MappingProxyType({"bounds": BoundsReport, "cost": CostReport, "goodput": GoodputReport})
"""Parts of a result beside the metrics of the step."""

WANTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        TIME_TO_TRAIN: ("training.tokens", "give training.tokens, such as 15T"),
        "cost.training": ("training.tokens", "give training.tokens, such as 15T"),
        "goodput.time_to_train": ("training.tokens", "give training.tokens, such as 15T"),
        "cost": ("cost", "add such as 'cost: {gpu_hour: 2.50 USD, pue: 1.2}'"),
        "goodput": ("reliability", "add such as 'reliability: {node_mtbf: 5 years, restart: 8 min}'"),
    }
)
"""Key that a scenario needs before a metric has a value, and a hint, by the beginning of the metric's name."""

_NOT_RESULTS: Final = ("schema_version", "engine.wall_s")
"""Metrics without use in a condition: constant, or different in each run."""


@lru_cache
def metric_names() -> Mapping[str, bool]:
    """Return every name that a condition may hold, and whether its value is true or false and not a number."""
    found = dict(_names(Metrics, ""))
    for section, record in SECTIONS.items():
        found |= dict(_names(record, f"{section}."))
    found |= {MEMORY_FRACTION: False, TIME_TO_TRAIN: False}
    return MappingProxyType({name: flag for name, flag in found.items() if name not in _NOT_RESULTS})


@lru_cache
def serving_names() -> Mapping[str, bool]:
    """Return the same of a serving run."""
    return MappingProxyType({name: flag for name, flag in _names(ServingMetrics, "") if name not in _NOT_RESULTS})


def metric_values(metrics: Metrics, time_to_train_s: float | None, sections: Mapping[str, object]) -> dict[str, float | bool]:
    """Return the value of each metric that has one."""
    values = dict(_values(metrics, ""))
    for section, record in sections.items():
        values |= dict(_values(record, f"{section}."))
    values[MEMORY_FRACTION] = metrics.memory.peak_bytes / metrics.memory.capacity_bytes
    if time_to_train_s is not None:
        values[TIME_TO_TRAIN] = time_to_train_s
    return {name: value for name, value in values.items() if name in metric_names()}


def serving_values(metrics: ServingMetrics) -> dict[str, float | bool]:
    """Return the value of each metric that a serving run has."""
    return {name: value for name, value in _values(metrics, "") if name in serving_names()}


def wanted_by(name: str) -> tuple[tuple[str, str], ...]:
    """Return the keys that a scenario needs for a metric to have a value, each with what to write."""
    return tuple(wanted for begin, wanted in WANTS.items() if name == begin or name.startswith(f"{begin}."))


def without_value(name: str) -> ScenarioError:
    """Return the error for a metric that exists, but not for this scenario."""
    return ScenarioError(f"'{name}' has no value in this run", hint="results.json has it as null, or not at all; ask about another metric")


def _names(record: type, prefix: str) -> Iterator[tuple[str, bool]]:
    hints: Mapping[str, object] = get_type_hints(record)
    for field in fields(record):
        kinds = _alternatives(hints[field.name])
        inner = next((kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)), None)
        if inner is not None:
            yield from _names(inner, f"{prefix}{field.name}.")
        elif kinds and all(kind is int or kind is float or kind is bool for kind in kinds):
            yield f"{prefix}{field.name}", kinds[0] is bool


def _alternatives(hint: object) -> list[object]:
    """Return the type of a figure, apart from missing."""
    inside: tuple[object, ...] = get_args(hint)
    # A tuple of figures is no figure; a union is one of several.
    alternatives = list(inside) if NoneType in inside else [hint]
    return [kind for kind in alternatives if kind is not NoneType]


def _values(record: object, prefix: str) -> Iterator[tuple[str, float | bool]]:
    if record is None or isinstance(record, type) or not is_dataclass(record):
        return
    for field in fields(record):
        value: object = getattr(record, field.name)
        if isinstance(value, int | float):
            yield f"{prefix}{field.name}", value
        else:
            yield from _values(value, f"{prefix}{field.name}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A condition and what came of it."""

    check: str
    value: float | None
    """Left side of a single comparison, if it is finite; None for anything else."""
    values: Mapping[str, float | bool]
    """Values of the metrics that it names, each in the unit of its name."""
    holds: bool
    decided: bool = True
    """Whether the same comes out at both ends of the interval of the step time; true without an interval."""

    def sentence(self) -> str:
        """Return whether it holds, with :meth:`shown` unless it is one truth value, and a doubt where the interval leaves one."""
        found = () if list(self.values) == [self.check] else (self.shown(),)
        doubt = () if self.decided else (UNDECIDED,)
        remark = f" ({'; '.join((*found, *doubt))})" if found or doubt else ""
        return f"{self.check} {'holds' if self.holds else 'is false'}{remark}"

    def shown(self) -> str:
        """Return what to set beside the condition: the number that it is about, or all that it names."""
        lone = self.value is not None and list(self.values.values()) == [self.value]
        return shown(next(iter(self.values)), self.value) if lone else self.found()

    def found(self) -> str:
        """Return the values as text, such as ``mfu is 31.0 %, hfu is 40.0 %``."""
        return ", ".join(
            f"{name} is {str(value).lower() if isinstance(value, bool) else shown(name, value)}" for name, value in self.values.items()
        )


def parse_check(text: str) -> Condition:
    """Return the condition that ``text`` states about a result.

    Examples
    --------
    >>> parse_check("memory_fraction <= 0.92 and step_time_s < 750 ms").names
    ('memory_fraction', 'step_time_s')
    """
    return parse_condition(text, metric_names())


def given_by(spec: ScenarioSpec | ServingScenarioSpec) -> dict[str, bool]:
    """Return the keys without which some metrics have no value, and whether a scenario has them."""
    if isinstance(spec, ServingScenarioSpec):
        return {"cost": spec.cost is not None}
    return {"training.tokens": spec.training.tokens is not None, "cost": spec.cost is not None, "reliability": spec.reliability is not None}


def lacking(names: Sequence[str], given: Mapping[str, bool]) -> ScenarioError | None:
    """Return the error for the first metric that has no value because a scenario lacks a key; None where all have one."""
    for name in names:
        for key, hint in wanted_by(name):
            if not given.get(key, False):
                return ScenarioError(f"'{name}' has no value without '{key}'", hint=hint)
    return None


def parse_checks(texts: Sequence[str], given: Mapping[str, bool], places: Sequence[Place]) -> tuple[Condition, ...]:
    """Return the conditions of a scenario.

    Parameters
    ----------
    texts
        One condition each.
    given
        Keys of the scenario without which some metrics have no value, and whether they are there.
    places
        Where each text stands.
    """
    return tuple(_checked(index, text, given, place) for index, (text, place) in enumerate(zip(texts, places, strict=True)))


def evaluate_checks(
    checks: Sequence[Condition], values: Mapping[str, float | bool], bar: ErrorBar | None = None
) -> tuple[CheckResult, ...]:
    """Return what came of each check, given the value of each metric.

    Parameters
    ----------
    bar
        Interval of the step time; a check that it leaves open says so.

    Raises
    ------
    ScenarioError
        For a metric without a value in this run.
    """
    results: list[CheckResult] = []
    for index, check in enumerate(checks):
        missing = next((name for name in check.names if name not in values), None)
        if missing is not None:
            error = without_value(missing)
            raise ScenarioError(error.message, field=f"checks.{index}", hint=error.hint)
        asked = {name: values[name] for name in check.names}
        left = check.value(values)
        # JSON knows neither infinity nor NaN, which a division by zero gives.
        finite = left if left is not None and math.isfinite(left) else None
        holds = check.holds(values)
        ends = () if bar is None else (bar.least_fraction, bar.most_fraction)
        decided = all(check.holds(figures_at(values, end)) == holds for end in ends)
        results.append(CheckResult(check=check.text, value=finite, values=asked, holds=holds, decided=decided))
    return tuple(results)


def _checked(index: int, text: str, given: Mapping[str, bool], place: Place) -> Condition:
    field = f"checks.{index}"
    try:
        check = parse_check(text)
    except ExpressionError as error:
        raise ScenarioError(error.message, field=field, hint=error.hint, place=_inside(place, text, error.offset)) from error
    missing = lacking(check.names, given)
    if missing is not None:
        raise ScenarioError(missing.message, field=field, hint=missing.hint, place=place)
    return check


def _inside(place: Place, text: str, offset: int) -> Place:
    """Return the place of a character of a text, where the text stands on one line as it was read."""
    start = (place.text or "").find(text, max((place.column or 1) - 1, 0)) if text else -1
    return place if start < 0 else replace(place, column=start + offset + 1)
