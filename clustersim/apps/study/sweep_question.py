"""Question to a sweep: its points, the objective, and the figures that are shown of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from clustersim.apps.study.axis import Axis
from clustersim.apps.study.design import Design, axis_names
from clustersim.apps.study.objective import AskedExpression, Objective
from clustersim.apps.study.point import Base, Point, figure_names, override_of
from clustersim.apps.study.results import ResultColumns, chosen_metrics
from clustersim.apps.study.study_file import Source, Study, StudyRequest, open_study
from clustersim.config.build import build
from clustersim.config.checks import given_by
from clustersim.config.overriding import apply_overrides
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError

BEST: Final = "-tokens_per_s"
"""Default order of the points: the quantity that is smallest at the best one."""
BEST_SERVED: Final = "-output_tokens_per_s"
"""The same of a serving scenario."""
MOST_CHECKED: Final = 100
"""Values of an axis that are looked at one by one before anything is run; of more, the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepQuestion:
    """A sweep that can be run."""

    name: str
    base: Base
    points: tuple[Point, ...]
    objective: Objective
    columns: ResultColumns
    """Keys that vary, and metrics that are shown."""


def asked_sweep(source: Source, request: StudyRequest) -> SweepQuestion:
    """Return the sweep that a scenario or a study and the command line ask for together, after a look at all of it."""
    return sweep_of(open_study(source, request))


def sweep_of(study: Study) -> SweepQuestion:
    """Return the sweep of a study; errors as of :func:`asked_sweep`."""
    spec, request, base, design = study.spec, study.request, study.base, study.design()
    points = _points(study, design)
    if not points:
        raise study.mistake(("leave_out",), "every run is left out", "leave out fewer")
    _check_values(base, design, points)
    keys = tuple(dict.fromkeys(key for point in points for key in point.values))
    given = given_by(base.any_scenario(points[0].values).spec) | dict.fromkeys(_parts_of(keys), True)
    own = axis_names(design)
    names = {**figure_names(serves=base.serves), **own}
    default = AskedExpression(text=BEST_SERVED if base.serves else BEST, field="--sort")
    sort = AskedExpression(text=request.metric, field="--sort") if request.metric else study.written("sort") if spec.sort else default
    where = tuple(each.condition(names, given) for each in study.conditions())
    metrics = _metrics(study)
    return SweepQuestion(
        name=spec.name or _name(study),
        base=base,
        points=points,
        objective=Objective(quantity=sort.quantity(names, given), where=where, keys=frozenset(own)),
        columns=ResultColumns(keys=keys, metrics=metrics),
    )


def _points(study: Study, design: Design) -> tuple[Point, ...]:
    """Return each case with each combination of the axes."""
    named, most = study.named_points(), study.request.most_points
    combined = design.points(max(1, most // max(1, len(named)))) if design.blocks else []
    if not named or not combined:
        return named or tuple(combined)
    pairs = [(case, each) for case in named for each in combined]
    return tuple(
        Point(number=number, name=case.name, values={**case.values, **each.values}) for number, (case, each) in enumerate(pairs, 1)
    )


def _metrics(study: Study) -> tuple[str, ...]:
    asked, serves = study.request.metrics, study.base.serves
    try:
        return chosen_metrics(asked or study.spec.metrics, serves=serves)
    except ScenarioError as error:
        raise error if asked else study.mistake(("metrics",), error.message, error.hint) from error


def _name(study: Study) -> str:
    """Return the name of the scenario, or of the file where it is a study, or cannot be used without the values of the sweep."""
    stem = Path(study.document.name).stem
    if study.document is not study.base.source.document:
        return stem
    try:
        return study.base.any_scenario({}).name
    except ScenarioError:
        return stem


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
