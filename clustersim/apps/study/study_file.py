"""A study as it is asked for: a scenario, the runs that are made of it and questions about them, from a file and a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints

from clustersim.apps.importing.importing import foreign_source
from clustersim.apps.importing.opening import open_written
from clustersim.apps.study.axis import Axis, axis_from_data, parse_axis
from clustersim.apps.study.design import MOST_POINTS, Design, design_of, exclusion_of
from clustersim.apps.study.objective import AskedExpression
from clustersim.apps.study.point import Base, Point, override_of
from clustersim.config.load import ScenarioText, example_names, read_source
from clustersim.config.overriding import parse_override
from clustersim.config.scenario_schema import NAME_PATTERN
from clustersim.documents.check import validate_document, value_at
from clustersim.documents.files import data_path
from clustersim.documents.text import Data, Document, is_mapping, read_document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.profile_schema import Checked

RUNS: Final = ("grid", "zip", "cases")
"""Keys that make a file a study, and no scenario."""
_SUFFIXES: Final = (".yaml", ".yml")

Source = str | Path | Mapping[str, object]
Text = Annotated[str, StringConstraints(min_length=1)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
CaseName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][\w-]{0,40}$")]
Changes = dict[str, JsonValue]


class CaseSpec(Checked):
    """Changes to the scenario, and their label."""

    label: Text | None = None
    set: Changes = Field(default={})


def _as_case(data: object) -> object:
    """Return changes alone as a case without a label."""
    return data if is_mapping(data) and data.keys() <= {"label", "set"} else {"set": data}


Case = Annotated[CaseSpec, BeforeValidator(_as_case)]


class PointsSpec(Checked):
    """Points of variation, alike in every case."""

    label: Text
    values: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], Case] = Field(min_length=1)


class SayingSpec(Checked):
    """A sentence, and when it may be said."""

    when: Text
    say: Text


class ClaimSpec(Checked):
    """Usual claim, the condition under which it is right, and the sentence with what the runs show."""

    says: Text
    holds: Text
    found: Text


class PanelSpec(Checked):
    """One column, drawn for some cases, or for all."""

    column: Word
    label: Text
    cases: list[str] | None = None


class PictureSpec(Checked):
    """Contents of the picture of a study."""

    subtitle: Text
    panels: list[PanelSpec] = Field(min_length=1, max_length=3)


class StudySpec(Checked):
    """A scenario, the runs that are made of it, and all that may be asked about them."""

    version: Literal[1] = 1
    name: Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")] | None = None
    description: str | None = None
    scenario: str | dict[str, JsonValue]
    set: Changes = Field(default={})
    # Runs: cases times points, times the product of all axes.
    cases: dict[CaseName, Case] = Field(default={})
    points: PointsSpec | None = None
    leave_out: list[str] = Field(default=[])
    grid: dict[str, JsonValue] = Field(default={})
    zip: list[Annotated[dict[str, JsonValue], Field(min_length=1)]] = Field(default=[])
    exclude: list[JsonValue] = Field(default=[])
    # Questions: the best run, and what that depends on.
    where: list[str] = Field(default=[])
    sort: str | None = None
    metrics: list[str] = Field(default=[])
    metric: str | None = None
    break_even: str | None = None
    sensitivity: list[str] = Field(default=[])
    # Questions: an answer in words, and claims.
    question: Text | None = None
    columns: dict[Word, Text] = Field(default={})
    values: dict[Word, Text] = Field(default={})
    answer: list[SayingSpec] = Field(default=[])
    claims: list[ClaimSpec] = Field(default=[])
    picture: PictureSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """Arguments of the command line, or of a call."""

    over: tuple[str | Axis, ...] = ()
    exclude: tuple[str, ...] = ()
    cases: tuple[str | Point, ...] = ()
    changes: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    metric: str | None = None
    """Metric of a what-if, or order of a sweep."""
    metrics: tuple[str, ...] = ()
    most_points: int = MOST_POINTS
    break_even: str | None = None
    sensitivity: tuple[str, ...] = ()
    method: str | None = None
    """None varies one figure at a time."""
    samples: int | None = None
    jobs: int | None = 1
    """None for one for each processor."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A file and a command line together."""

    spec: StudySpec
    document: Document
    base: Base
    request: StudyRequest

    def place(self, *path: str | int, key: bool = False) -> Place:
        """Return the place of a value of the file, or of its key."""
        return self.document.place(path, key=key)

    def written(self, *path: str | int) -> AskedExpression:
        """Return an expression of the file with its place."""
        return AskedExpression(text=str(self.data(*path)), field=".".join(map(str, path)), place=self.document.place(path))

    def mistake(self, path: Sequence[str | int], message: str, hint: str | None = None) -> ScenarioError:
        """Return an error about a value of the file."""
        return ScenarioError(message, field=".".join(map(str, path)), hint=hint, place=self.document.place(path))

    def conditions(self) -> list[AskedExpression]:
        """Return the conditions of the file, then those of the command line."""
        return [
            *(self.written("where", index) for index in range(len(self.spec.where))),
            *(AskedExpression(text=text, field="--where") for text in self.request.where),
        ]

    def data(self, *path: str | int) -> Data:
        """Return a value of the file as it was written."""
        return value_at(self.document.data, path)

    def named_points(self) -> tuple[Point, ...]:
        """Return cases times points, without those that are left out.

        Raises
        ------
        ScenarioError
            When one is left out that there is not.
        """
        points = self.spec.points
        if points is not None and not self.spec.cases:
            raise self.mistake(("points",), "vary cases, and there are none", "add cases, such as base: {}")
        found: dict[str, Changes] = {name: case.set for name, case in self.spec.cases.items()}
        if points is not None:
            steps = points.values.items()
            found = {f"{name}.{step}": {**changes, **point.set} for name, changes in found.items() for step, point in steps}
        for index, name in enumerate(self.spec.leave_out):
            if found.pop(name, None) is None:
                raise self.mistake(("leave_out", index), f"there is no run '{name}'", "write case.point, each once")
        return tuple(Point(number=number, name=name, values=values) for number, (name, values) in enumerate(found.items(), 1))

    def design(self) -> Design:
        """Return the axes of the file and of the command line, and the combinations that are left out."""
        spec, request = self.spec, self.request
        blocks = [[self._axis("grid", key)] for key in spec.grid]
        blocks += [[self._axis("zip", index, key) for key in keys] for index, keys in enumerate(spec.zip)]
        blocks += [[parse_axis(each) if isinstance(each, str) else each] for each in request.over]
        design = Design(blocks=()) if not blocks and spec.cases else design_of(blocks)
        excluded = [(self.data("exclude", index), self.place("exclude", index)) for index in range(len(spec.exclude))]
        excluded += [(text, Place(file=f"--exclude {text}")) for text in request.exclude]
        return replace(design, exclusions=tuple(exclusion_of(data, design, place) for data, place in excluded))

    def _axis(self, *path: str | int) -> Axis:
        return axis_from_data(str(path[-1]), self.data(*path), self.place(*path, key=True))


def shipped_studies() -> Path:
    """Return the folder of the shipped studies."""
    return data_path("scenarios") / "studies"


def open_study(source: Source, request: StudyRequest) -> Study:
    """Return the study that a source and a command line ask for together.

    Parameters
    ----------
    source
        A scenario (a path, a shipped name, ``-`` or a mapping; or a file of a framework), or a study: a path or a shipped name.
    """
    document = _study_document(source)
    if document is None:
        scenario, changes = open_written(source, request.changes)
        imported = str(source) if isinstance(source, str | Path) and foreign_source(str(source)) else None
        if imported is not None:
            changes = tuple(parse_override(text) for text in request.changes)
        base = Base(source=scenario, changes=changes, seed=request.seed, imported=imported)
        return Study(spec=StudySpec(scenario={}), document=scenario.document, base=base, request=request)
    return read_study(document, request)


def read_study(document: Document, request: StudyRequest) -> Study:
    """Return the study of a file; errors as of :func:`open_study`."""
    spec = validate_document(StudySpec, document)
    changes = (*(override_of(key, value) for key, value in spec.set.items()), *(parse_override(text) for text in request.changes))
    base = Base(source=_scenario_of(spec, document), changes=changes, seed=request.seed)
    return Study(spec=spec, document=document, base=base, request=request)


def _study_document(source: Source) -> Document | None:
    """Return the study that a path or a shipped name stands for; None for everything else."""
    if not isinstance(source, str | Path) or str(source) == "-":
        return None
    path = Path(source)
    if not path.is_file() and "/" not in str(source) and path.suffix not in _SUFFIXES and str(source) not in example_names():
        path = shipped_studies() / f"{source}.yaml"
    if not path.is_file():
        return None
    try:
        document = read_document(path)
    except ScenarioError:
        if foreign_source(str(path)):
            return None
        raise
    return document if any(key in document.data for key in RUNS) else None


def _scenario_of(spec: StudySpec, document: Document) -> ScenarioText:
    """Return the scenario of a study: one that stands in it, in a file beside it, or a shipped one."""
    folder = Path(document.name).parent
    if not isinstance(spec.scenario, str):
        data = document.data["scenario"]
        spot = document.spot.children.get("scenario") if document.spot else None
        assert isinstance(data, dict)
        return ScenarioText(document=replace(document, data=data, spot=spot), text="", folder=folder)
    beside = folder / spec.scenario
    try:
        return read_source(beside if beside.is_file() else spec.scenario)
    except ScenarioError as error:
        if error.place is not None and error.message != "no such file":
            raise
        raise ScenarioError(error.message, field="scenario", hint=error.hint, place=document.place(("scenario",))) from error
