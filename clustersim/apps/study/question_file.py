"""A question, what is usually claimed, the runs that decide it, and the conditions by which they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, StringConstraints

from clustersim.apps.study.figures import figure_names
from clustersim.apps.study.sentences import names_in
from clustersim.apps.sweep.point import Base
from clustersim.apps.sweep.study_file import scenario_of_study
from clustersim.config.scenario_schema import NAME_PATTERN
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import Document, read_document
from clustersim.errors import ScenarioError
from clustersim.expressions.lexer import ExpressionError
from clustersim.expressions.measures import measure_of_key
from clustersim.expressions.parse import Condition, Quantity, parse_condition, parse_quantity_of
from clustersim.hardware.profile_schema import Checked

KEY: Final = "claims"
"""Key that makes a file a question."""

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
Step = Annotated[str, StringConstraints(pattern=r"^\w+$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Changes = dict[str, JsonValue]


class VariantSpec(Checked):
    """Some changes to the scenario, and how they are called."""

    label: Text | None = None
    set: Changes = Field(default={})


class PointsSpec(Checked):
    """Points of variation, alike in every case."""

    label: Text
    values: dict[Step, VariantSpec] = Field(min_length=1)


class SayingSpec(Checked):
    """A sentence, and when it may be said."""

    when: Text
    say: Text


class ClaimSpec(Checked):
    """Usual claim, the condition under which it is right, and what the runs have to say about it."""

    says: Text
    holds: Text
    found: Text


class PanelSpec(Checked):
    """One column, drawn for some cases."""

    column: Word
    label: Text
    cases: list[Word] | None = None
    """All where it says nothing."""


class PictureSpec(Checked):
    """Contents of the picture of a study."""

    subtitle: Text
    panels: list[PanelSpec] = Field(min_length=1, max_length=3)


class QuestionSpec(Checked):
    """A whole study."""

    version: Literal[1] = 1
    name: Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
    question: Text
    scenario: str | dict[str, JsonValue]
    cases: dict[Word, VariantSpec] = Field(min_length=1)
    points: PointsSpec
    leave_out: list[str] = Field(default=[])
    columns: dict[Word, Text] = Field(min_length=1)
    values: dict[Word, Text] = Field(default={})
    answer: list[SayingSpec] = Field(min_length=1)
    claims: list[ClaimSpec] = Field(min_length=1)
    picture: PictureSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """A sentence with values in braces, and the condition under which it is true."""

    when: Condition
    say: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A usual claim; ``found`` has values in braces."""

    says: str
    holds: Condition
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyQuestion:
    """A checked question, ready to be run."""

    spec: QuestionSpec
    base: Base
    cells: tuple[tuple[str, str], ...]
    """Case and point of each run, in order."""
    columns: tuple[tuple[str, Quantity], ...]
    """Quantities of figures of one run."""
    values: tuple[tuple[str, Quantity], ...]
    """Quantities of columns of all runs, written ``case.point.column``, and of values before."""
    answer: tuple[Saying, ...]
    claims: tuple[Claim, ...]

    def changes(self, case: str, point: str) -> Changes:
        """Return what a run changes in the scenario."""
        return {**self.spec.cases[case].set, **self.spec.points.values[point].set}

    def case_label(self, case: str) -> str:
        """Return how a case is called."""
        return self.spec.cases[case].label or case.replace("_", " ")

    def point_label(self, point: str) -> str:
        """Return how a point is called."""
        return self.spec.points.values[point].label or point.replace("_", " ")


@lru_cache
def question_titles() -> Mapping[str, str]:
    """Return what the shipped questions ask, by their names."""
    documents = {path.stem: read_document(path).data for path in sorted(_shipped().glob("*.yaml"))}
    return MappingProxyType({name: str(data["question"]) for name, data in documents.items() if KEY in data})


def question_names() -> tuple[str, ...]:
    """Return the names of the shipped questions."""
    return tuple(question_titles())


def read_question(source: str | Path) -> StudyQuestion:
    """Return a question from a file, or a shipped one by its name.

    Raises
    ------
    ScenarioError
        With the first mistake, its place and what would be right.
    """
    path = source if isinstance(source, Path) else _shipped() / f"{source}.yaml"
    document = read_document(path)
    spec = validate_document(QuestionSpec, document)
    cells = _cells(spec, document)
    reader = _QuestionReader(document, figure_names())
    columns = tuple((name, reader.quantity(("columns", name), text)) for name, text in spec.columns.items())
    for name, quantity in columns:
        _check_unit(name, quantity, document, ("columns", name))
    reader.names = {f"{case}.{point}.{name}": False for case, point in cells for name, _ in columns}
    values: list[tuple[str, Quantity]] = []
    for name, text in spec.values.items():
        values.append((name, reader.quantity(("values", name), text)))
        _check_unit(name, values[-1][1], document, ("values", name))
        reader.names[name] = False
    answer = tuple(
        Saying(when=reader.condition(("answer", index, "when"), each.when), say=reader.sentence(("answer", index, "say"), each.say))
        for index, each in enumerate(spec.answer)
    )
    claims = tuple(
        Claim(
            says=each.says,
            holds=reader.condition(("claims", index, "holds"), each.holds),
            found=reader.sentence(("claims", index, "found"), each.found),
        )
        for index, each in enumerate(spec.claims)
    )
    for index, panel in enumerate(spec.picture.panels):
        if panel.column not in spec.columns:
            raise _mistake(document, ("picture", "panels", index, "column"), f"there is no column '{panel.column}'", "name one of columns")
        unknown = [case for case in panel.cases or () if case not in spec.cases]
        if unknown:
            raise _mistake(document, ("picture", "panels", index, "cases"), f"there is no case '{unknown[0]}'", "name some of cases")
    base = Base(source=scenario_of_study(spec.scenario, document))
    return StudyQuestion(spec=spec, base=base, cells=cells, columns=columns, values=tuple(values), answer=answer, claims=claims)


def _shipped() -> Path:
    return data_path("scenarios") / "studies"


def _cells(spec: QuestionSpec, document: Document) -> tuple[tuple[str, str], ...]:
    every = {f"{case}.{point}": (case, point) for case in spec.cases for point in spec.points.values}
    for index, name in enumerate(spec.leave_out):
        if every.pop(name, None) is None:
            raise _mistake(document, ("leave_out", index), f"there is no run '{name}'", "write case.point, each once")
    return tuple(every.values())


def _check_unit(name: str, quantity: Quantity, document: Document, path: tuple[str | int, ...]) -> None:
    said, found = measure_of_key(name), quantity.measure
    if said != found:
        raise _mistake(document, path, f"the name says {said}, and the expression is {found}", "end the name in the unit")


def _mistake(document: Document, path: tuple[str | int, ...], message: str, hint: str | None) -> ScenarioError:
    return ScenarioError(message, field=".".join(str(part) for part in path), hint=hint, place=document.place(path))


class _QuestionReader:
    """Reads the expressions of one file; ``names`` are those that they may hold now."""

    def __init__(self, document: Document, names: dict[str, bool]) -> None:
        self._document = document
        self.names = names

    def quantity(self, path: tuple[str | int, ...], text: str) -> Quantity:
        """Return the number that a text stands for."""
        try:
            return parse_quantity_of(text, self.names)
        except ExpressionError as error:
            raise _mistake(self._document, path, error.message, error.hint) from error

    def condition(self, path: tuple[str | int, ...], text: str) -> Condition:
        """Return the condition that a text states."""
        try:
            return parse_condition(text, self.names)
        except ExpressionError as error:
            raise _mistake(self._document, path, error.message, error.hint) from error

    def sentence(self, path: tuple[str | int, ...], text: str) -> str:
        """Return a sentence whose values all exist."""
        for name in names_in(text):
            if name not in self.names:
                raise _mistake(self._document, path, f"there is no value '{name}'", "define it below values")
        return text
