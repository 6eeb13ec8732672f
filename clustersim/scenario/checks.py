"""The ``checks`` of a scenario: ``metric OP number``, parsed and compared, never evaluated."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.documents.check import choices_hint
from clustersim.errors import ScenarioError
from clustersim.report.metrics import Metrics
from clustersim.units.quantity import parse_quantity

UNIT_OF_METRIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "step_time_s": "s",
        "time_to_train_s": "s",
        "samples_per_s": "",
        "tokens_per_s": "",
        "tokens_per_s_per_gpu": "",
        "model_flops_per_step": "",
        "hardware_flops_per_step": "",
        "tflops_per_gpu": "",
        "mfu": "",
        "hfu": "",
        "bubble_fraction": "",
        "memory_fraction": "",
        "memory.peak_bytes": "B",
        "ranks": "",
        "gpus": "",
    }
)
"""What a check may ask about, and the unit that its number may carry; empty where it is a plain number."""

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)

_SHAPE: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*(\S.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition on the result."""

    text: str
    metric: str
    operator: str
    limit: float

    def holds(self, value: float) -> bool:
        """Return whether ``value`` satisfies the condition."""
        return OPERATORS[self.operator](value, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A condition and what came of it."""

    check: str
    value: float
    holds: bool


def parse_check(text: str) -> Check:
    """Return the condition that ``text`` states.

    Raises
    ------
    ScenarioError
        When the text is not ``metric OP number`` or the metric does not exist.

    Examples
    --------
    >>> parse_check("memory_fraction <= 0.92").limit
    0.92
    >>> parse_check("step_time_s < 750 ms").limit
    0.75
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ScenarioError(f"{text!r} is not a check", hint="write a metric, one of <= < >= >, and a number: 'memory_fraction <= 0.92'")
    metric, sign, limit = shape.groups()
    if metric not in UNIT_OF_METRIC:
        raise ScenarioError(f"there is no metric '{metric}'", hint=choices_hint(metric, UNIT_OF_METRIC, longest=len(UNIT_OF_METRIC)))
    return Check(text=text, metric=metric, operator=sign, limit=_limit(limit, UNIT_OF_METRIC[metric]))


def evaluate_checks(checks: tuple[Check, ...], values: Mapping[str, float]) -> tuple[CheckResult, ...]:
    """Return what came of each check, given the value of each metric."""
    return tuple(CheckResult(check=check.text, value=values[check.metric], holds=check.holds(values[check.metric])) for check in checks)


def metric_values(metrics: Metrics, time_to_train_s: float | None) -> dict[str, float]:
    """Return the value of every metric that a check may ask about."""
    special = {"memory_fraction": metrics.memory.peak_bytes / metrics.memory.capacity_bytes, "memory.peak_bytes": metrics.memory.peak_bytes}
    if time_to_train_s is not None:
        special["time_to_train_s"] = time_to_train_s
    plain = {name: float(getattr(metrics, name)) for name in UNIT_OF_METRIC if hasattr(metrics, name)}
    return plain | special


def _limit(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        if unit:
            return parse_quantity(text, unit)
        raise ScenarioError(f"{text!r} is not a number", hint="this metric takes a plain number, such as 0.92") from None
    if math.isnan(number):
        raise ScenarioError("a check against NaN can never hold", hint="write a number")
    return number
