"""A sweep as it is asked for: a scenario and axes on the command line, or a study in a YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, StringConstraints

from clustersim.apps.sweep.axis import Axis, axis_from_data, parse_axis
from clustersim.apps.sweep.design import MOST_POINTS, Design, design_of, exclusion_of
from clustersim.apps.sweep.point import Base
from clustersim.apps.sweep.question import BEST, SweepQuestion, Wishes, question_of
from clustersim.config.load import ScenarioText, example_names, read_source
from clustersim.config.overriding import Override, parse_override
from clustersim.config.scenario_schema import NAME_PATTERN
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.spots import Data
from clustersim.documents.text import Document, read_document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.profile_schema import Checked

AXES: Final = ("grid", "zip")
"""Keys that make a file a study, and no scenario."""
_SUFFIXES: Final = (".yaml", ".yml")


class SweepSpec(Checked):
    """A scenario, what is varied in it, and what is asked of the points."""

    version: Literal[1] = 1
    name: Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")] | None = None
    description: str | None = None
    scenario: str | dict[str, JsonValue]
    set: dict[str, JsonValue] = Field(default={})
    grid: dict[str, JsonValue] = Field(default={})
    zip: list[Annotated[dict[str, JsonValue], Field(min_length=1)]] = Field(default=[])
    exclude: list[JsonValue] = Field(default=[])
    where: list[str] = Field(default=[])
    sort: str = BEST
    metrics: list[str] = Field(default=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """Arguments of the command line, or of a call."""

    over: tuple[str | Axis, ...] = ()
    exclude: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    sort: str | None = None
    metrics: tuple[str, ...] = ()
    most_points: int = MOST_POINTS
    seed: int = 0


def asked_question(source: str | Path | Mapping[str, object], asked: SweepRequest) -> SweepQuestion:
    """Return the sweep that a scenario or a study and the command line ask for together.

    Parameters
    ----------
    source
        A scenario (a path, a shipped name, ``-`` or a mapping), or a study: a path or the name of a shipped one.

    Raises
    ------
    ScenarioError
        With the first mistake, its place and what would be right.
    """
    study = study_document(source, AXES)
    if study is None:
        return _from_command_line(read_source(source), asked)
    return _from_study(study, asked)


def _shipped() -> Path:
    return data_path("scenarios") / "studies"


def study_document(source: str | Path | Mapping[str, object], keys: Sequence[str]) -> Document | None:
    """Return the study that a path or a shipped name stands for: a file with any of some keys; None for everything else."""
    if not isinstance(source, str | Path) or str(source) == "-":
        return None
    path = Path(source)
    if not path.is_file() and "/" not in str(source) and path.suffix not in _SUFFIXES and str(source) not in example_names():
        path = _shipped() / f"{source}.yaml"
    if not path.is_file():
        return None
    document = read_document(path)
    return document if any(key in document.data for key in keys) else None


def _from_command_line(source: ScenarioText, asked: SweepRequest) -> SweepQuestion:
    base = Base(source=source, changes=tuple(parse_override(text) for text in asked.changes), seed=asked.seed)
    design = design_of([[_axis(each)] for each in asked.over])
    design = _without(design, asked.exclude)
    name = base.any_scenario({}).name if _is_scenario(base) else Path(source.document.name).stem
    wishes = Wishes(where=asked.where, sort=asked.sort or BEST, metrics=asked.metrics, most_points=asked.most_points)
    return question_of(name, base, design, wishes)


def _axis(asked: str | Axis) -> Axis:
    return parse_axis(asked) if isinstance(asked, str) else asked


def _is_scenario(base: Base) -> bool:
    try:
        base.any_scenario({})
    except ScenarioError:
        return False
    return True


def _from_study(document: Document, asked: SweepRequest) -> SweepQuestion:
    spec = validate_document(SweepSpec, document)
    source = scenario_of_study(spec.scenario, document)
    fixed = tuple(
        Override(path=tuple(key.split(".")), value=_at(document, "set", key), text=f"{key}={_at(document, 'set', key)}") for key in spec.set
    )
    base = Base(source=source, changes=(*fixed, *(parse_override(text) for text in asked.changes)), seed=asked.seed)
    blocks = [[axis_from_data(key, _at(document, "grid", key), document.place(("grid", key), key=True))] for key in spec.grid]
    blocks += [_together(document, index, keys) for index, keys in enumerate(spec.zip)]
    blocks += [[_axis(each)] for each in asked.over]
    design = design_of(blocks)
    for index in range(len(spec.exclude)):
        place = document.place(("exclude", index))
        design = replace(design, exclusions=(*design.exclusions, exclusion_of(_at(document, "exclude", index), design, place)))
    design = _without(design, asked.exclude)
    wishes = Wishes(
        where=(*spec.where, *asked.where),
        sort=asked.sort or spec.sort,
        metrics=asked.metrics or tuple(spec.metrics),
        most_points=asked.most_points,
    )
    places = {key: document.place((key,)) for key in ("where", "sort", "metrics") if key in document.data}
    return question_of(spec.name or Path(document.name).stem, base, design, wishes, places)


def scenario_of_study(scenario: object, document: Document) -> ScenarioText:
    """Return the scenario of a study: one that stands in it, in a file beside it, or a shipped one.

    Raises
    ------
    ScenarioError
        When there is no such file.
    """
    folder = Path(document.name).parent
    if not isinstance(scenario, str):
        data = _at(document, "scenario")
        spot = document.spot.children.get("scenario") if document.spot else None
        assert isinstance(data, dict)
        return ScenarioText(document=replace(document, data=data, spot=spot), text="", folder=folder)
    beside = folder / scenario
    try:
        return read_source(beside if beside.is_file() else scenario)
    except ScenarioError as error:
        if error.place is not None and error.message != "no such file":
            raise
        raise ScenarioError(error.message, field="scenario", hint=error.hint, place=document.place(("scenario",))) from error


def _together(document: Document, index: int, keys: Mapping[str, object]) -> list[Axis]:
    return [axis_from_data(key, _at(document, "zip", index, key), document.place(("zip", index, key), key=True)) for key in keys]


def _without(design: Design, texts: Sequence[str]) -> Design:
    exclusions = [exclusion_of(text, design, Place(file=f"--exclude {text}")) for text in texts]
    return replace(design, exclusions=(*design.exclusions, *exclusions))


def _at(document: Document, *path: str | int) -> Data:
    data: Data = document.data
    for part in path:
        if isinstance(data, dict):
            data = data[str(part)]
        elif isinstance(data, list):
            data = data[int(part)]
    return data
