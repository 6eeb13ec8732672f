"""Question to a sweep: its points, conditions for a good one, the measure of the best, and figures shown of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pydantic import ValidationError

from clustersim.apps.sweep.axis import Axis
from clustersim.apps.sweep.design import MOST_POINTS, Design, Point, axis_names
from clustersim.apps.sweep.point import Base, override_of
from clustersim.apps.sweep.results import ResultColumns, ResultRow, chosen_metrics, sweep_metrics
from clustersim.config.build import build
from clustersim.config.checks import given_by, lacking
from clustersim.config.overriding import apply_overrides
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.parse import Condition, Quantity, parse_condition, parse_quantity_of
from clustersim.measure.deciding import is_better

BEST: Final = "-tokens_per_s"
"""Quantity that is smallest at the best point, unless somebody says otherwise."""
BEST_SERVED: Final = "-output_tokens_per_s"
"""The same of a serving scenario."""
MOST_CHECKED: Final = 100
"""Values of an axis that are looked at one by one before anything is run; of more, the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepQuestion:
    """A sweep that can be run."""

    name: str
    base: Base
    design: Design
    points: tuple[Point, ...]
    where: tuple[Condition, ...] = ()
    """Conditions that a point must meet to be an answer."""
    sort: Quantity
    """Smallest at the best point."""
    metrics: tuple[str, ...] = ()

    @property
    def columns(self) -> ResultColumns:
        """Columns of the table of results."""
        return ResultColumns(keys=self.design.keys, metrics=self.metrics)

    def answers(self, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the points that are good enough, the best first; equal ones in their order."""
        found = [row for row in rows if self.meets(row)]
        return sorted(found, key=lambda row: (self.sort.value(self.values(row)), row.point.number))

    def undecided(self, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the answers, the best first, that the best cannot be told apart from within the error bars."""
        answers = self.answers(rows)
        judged = [(row, row.outcome.judged(partial(self._score, row))) for row in answers]
        best = judged[0][1] if judged else None
        if best is None:
            return []
        others = [(row, each) for row, each in judged[1:] if each and row.outcome.scenario_hash != answers[0].outcome.scenario_hash]
        return [row for row, each in others if is_better(best, each) == "not decided"]

    def _score(self, row: ResultRow, figures: Mapping[str, float | bool]) -> float:
        return self.sort.value({**figures, **self._given(row)})

    def meets(self, row: ResultRow) -> bool:
        """Return whether a point runs, and every condition is met that it has figures for."""
        if row.outcome.status != "ok":
            return False
        values = self.values(row)
        names = {name for each in self.where for name in each.names} | set(self.sort.names)
        return names <= values.keys() and all(each.holds(values) for each in self.where)

    def values(self, row: ResultRow) -> dict[str, float | bool]:
        """Return what conditions may ask of a point: its figures, and its values that are numbers."""
        return {**row.outcome.figures, **self._given(row)}

    def _given(self, row: ResultRow) -> dict[str, float | bool]:
        known = axis_names(self.design)
        return {key: value for key, value in row.point.values.items() if key in known and isinstance(value, int | float)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Conditions, order and metrics of a sweep's points, as they were written."""

    where: tuple[str, ...] = ()
    sort: str = BEST
    metrics: tuple[str, ...] = ()
    most_points: int = MOST_POINTS


def question_of(name: str, base: Base, design: Design, wishes: Wishes, places: Mapping[str, Place] | None = None) -> SweepQuestion:
    """Return a sweep whose values, conditions and metrics have been looked at, before anything is run.

    Parameters
    ----------
    places
        Where each of ``where``, ``sort`` and ``metrics`` was written, if not on the command line.

    Raises
    ------
    ScenarioError
        When the base cannot be used, a value is none that its key can have, a condition names a metric that there is not, or there
        are too many points.
    """
    points = tuple(design.points(wishes.most_points))
    _check_values(base, design, points)
    given = given_by(base.any_scenario(points[0].values).spec) | dict.fromkeys(_parts_of(design.keys), True)
    names = dict(sweep_metrics(serves=base.serves)) | axis_names(design)
    where = tuple(_parsed(text, "where", names, given, places) for text in wishes.where)
    sort = _quantity(BEST_SERVED if base.serves and wishes.sort == BEST else wishes.sort, names, given, places)
    try:
        metrics = chosen_metrics(wishes.metrics, serves=base.serves)
    except ScenarioError as error:
        raise _placed(error, "metrics", places) from error
    return SweepQuestion(name=name, base=base, design=design, points=points, where=where, sort=sort, metrics=metrics)


def _check_values(base: Base, design: Design, points: Sequence[Point]) -> None:
    for axis in design.axes:
        seen: dict[str, Point] = {}
        for point in points:
            seen.setdefault(repr(point.values[axis.key]), point)
            if len(seen) >= MOST_CHECKED:
                break
        for point in seen.values():
            _check_value(base, axis, point)
    _check_base(base, points[0])


def _check_value(base: Base, axis: Axis, point: Point) -> None:
    """Refuse a value that its key can never have; one that does not go with others is a result."""
    try:
        apply_overrides(base.source.document, [override_of(axis.key, point.values[axis.key])])
    except ScenarioError as error:
        raise ScenarioError(error.message, field=axis.key, hint=error.hint, place=axis.place) from error
    try:
        base.any_scenario(point.values)
    except ScenarioError as error:
        if not _about_one_value(error):
            return
        field = error.field or ""
        if field == axis.key or field.startswith(f"{axis.key}.") or axis.key.startswith(f"{field}."):
            raise ScenarioError(error.message, field=field, hint=error.hint, place=axis.place) from error
        if not any(field.split(".")[0] == other.split(".")[0] for other in point.values):
            raise


def _about_one_value(error: BaseException | None) -> bool:
    """Return whether an error says that a value is of the wrong kind, and not that values contradict each other."""
    # An error that is raised once more may be its own cause.
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, ValidationError):
            return True
        seen.append(error)
        error = error.__cause__
    return False


def _check_base(base: Base, first: Point) -> None:
    """Refuse a scenario that has a mistake which no value of the sweep mends."""
    problems = [_problem(base, {}), _problem(base, first.values)]
    if problems[0] is not None and problems[1] is not None and str(problems[0]) == str(problems[1]):
        raise problems[0]


def _problem(base: Base, values: Mapping[str, Data]) -> ScenarioError | None:
    try:
        scenario = base.any_scenario(values)
        if not isinstance(scenario, ServingScenario):  # building that one draws all its requests
            build(scenario)
    except ScenarioError as error:
        return error
    except Exception:  # noqa: BLE001 - whatever else happens at a point is kept as its result
        return None
    return None


def _parts_of(keys: Sequence[str]) -> list[str]:
    """Return the keys and all that they are inside of."""
    return [".".join(key.split(".")[:depth]) for key in keys for depth in range(1, key.count(".") + 2)]


def _parsed(text: str, field: str, names: Mapping[str, bool], given: Mapping[str, bool], places: Mapping[str, Place] | None) -> Condition:
    try:
        condition = parse_condition(text, names)
    except ExpressionError as error:
        raise _placed(error, field, places) from error
    _check_given(condition.names, field, given, places)
    return condition


def _quantity(text: str, names: Mapping[str, bool], given: Mapping[str, bool], places: Mapping[str, Place] | None) -> Quantity:
    try:
        quantity = parse_quantity_of(text, names)
    except ExpressionError as error:
        raise _placed(error, "sort", places) from error
    _check_given(quantity.names, "sort", given, places)
    return quantity


def _check_given(names: Sequence[str], field: str, given: Mapping[str, bool], places: Mapping[str, Place] | None) -> None:
    missing = lacking(names, given)
    if missing is not None:
        raise _placed(missing, field, places)


def _placed(error: ScenarioError, field: str, places: Mapping[str, Place] | None) -> ScenarioError:
    if places is None:
        return ScenarioError(error.message, field=f"--{field}", hint=error.hint)
    return ScenarioError(error.message, field=field, hint=error.hint, place=places.get(field))
