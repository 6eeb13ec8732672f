"""The metrics that conditions may ask about: every figure of ``results.json`` that stands alone, by its dotted name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import Final, get_args, get_type_hints

from clustersim.errors import ScenarioError
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.measure.serving_metrics import ServingMetrics

MEMORY_FRACTION: Final = "memory_fraction"
"""Peak memory over capacity: for conditions alone, since the result has both."""
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
"""Metrics of no use in a condition: the same for everybody, or another each time."""


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
    """Return what a figure may be, apart from missing."""
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
