"""The ``checks`` of a scenario: conditions on its result, parsed and never evaluated as code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clustersim.config.metric_names import metric_names, wanted_by, without_value
from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, parse_condition


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A condition and what came of it."""

    check: str
    value: float | None
    """Left side of a single comparison, if it is finite; None for anything else."""
    values: Mapping[str, float | bool]
    """Values of the metrics that it names, each in the unit of its name."""
    holds: bool

    def shown(self) -> str:
        """Return what to set beside the condition: the number that it is about, or all that it names."""
        lone = self.value is not None and list(self.values.values()) == [self.value]
        return f"{self.value:.6g}" if lone else self.found()

    def found(self) -> str:
        """Return the values as text, such as ``mfu is 0.31, hfu is 0.4``."""
        return ", ".join(
            f"{name} is {str(value).lower() if isinstance(value, bool) else f'{value:.6g}'}" for name, value in self.values.items()
        )


def parse_check(text: str) -> Condition:
    """Return the condition that ``text`` states about a result.

    Raises
    ------
    ExpressionError
        When the text is no condition, names a metric that does not exist, or compares seconds with bytes.

    Examples
    --------
    >>> parse_check("memory_fraction <= 0.92 and step_time_s < 750 ms").names
    ('memory_fraction', 'step_time_s')
    """
    return parse_condition(text, metric_names())


def given_by(spec: ScenarioSpec) -> dict[str, bool]:
    """Return the keys without which some metrics have no value, and whether a scenario has them."""
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

    Raises
    ------
    ScenarioError
        With the place of the mistake inside the text.
    """
    return tuple(_checked(index, text, given, place) for index, (text, place) in enumerate(zip(texts, places, strict=True)))


def evaluate_checks(checks: Sequence[Condition], values: Mapping[str, float | bool]) -> tuple[CheckResult, ...]:
    """Return what came of each check, given the value of each metric.

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
        results.append(CheckResult(check=check.text, value=finite, values=asked, holds=check.holds(values)))
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
