"""A base, named changes to it, and the number by which they are judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.apps.study.axis import KeyRange, split_values
from clustersim.apps.study.objective import AskedExpression, Objective
from clustersim.apps.study.point import Base, Point, ResultRow, figure_names, override_of
from clustersim.apps.study.point_runs import evaluated
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
