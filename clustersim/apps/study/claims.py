"""Questions that runs answer in words: the runs, quantities of them, the answer, and a verdict on each usual claim."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.study.point import Point, ResultRow, evaluated, figure_names
from clustersim.apps.study.study_file import PictureSpec, Study, StudyRequest, read_study, shipped_studies
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import read_document
from clustersim.errors import Place, ScenarioError
from clustersim.expressions.measures import measure_of_key
from clustersim.expressions.parse import Condition, Quantity
from clustersim.notices import Flag
from clustersim.report.text_tables import TextAnswer, TextTable, short, shown_alike, three_digits

KEY: Final = "claims"
"""Key of a file that holds such a question."""
NEEDED: Final = ("question", "points", "columns", "answer", KEY, "picture")
RIGHT: Final = "right"
WRONG: Final = "wrong"
_SUFFIXES: Final = (".yaml", ".yml")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_VALUE: Final = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence with values in braces, and the condition under which it is true."""

    when: Condition
    say: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyQuestion:
    """A checked question, ready to be run."""

    name: str
    title: str
    study: Study
    picture: PictureSpec
    points: tuple[Point, ...]
    """Named ``case.point``."""
    columns: tuple[tuple[str, Quantity], ...]
    """Quantities of figures of one run."""
    values: tuple[tuple[str, Quantity], ...]
    """Quantities of columns of all runs, written ``case.point.column``, and of values before."""
    answer: tuple[Sentence, ...]
    claims: tuple[Sentence, ...]
    """Conditions of claims, with the sentence on the runs."""

    @property
    def case_labels(self) -> dict[str, str]:
        """Labels of the cases, by name."""
        return {name: case.label or name.replace("_", " ") for name, case in self.study.spec.cases.items()}

    @property
    def point_labels(self) -> dict[str, str]:
        """Labels of the points, by name."""
        points = self.study.spec.points
        return {} if points is None else {name: point.label or name.replace("_", " ") for name, point in points.values.items()}

    @property
    def axis(self) -> str:
        """Label of all points."""
        return "" if self.study.spec.points is None else self.study.spec.points.label


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One run of a study."""

    case: str
    point: str
    status: str
    """``ok``, ``does not fit`` or ``cannot run``."""
    reason: str
    columns: Mapping[str, float]
    """None of a run that there was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A common claim, and the answer of the runs."""

    claim: str
    verdict: str
    """``right`` or ``wrong``."""
    condition: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StudyAnswer(TextAnswer):
    """Answer that the runs give."""

    question: StudyQuestion
    rows: tuple[StudyRow, ...]
    values: Mapping[str, float]
    answer: str
    judged: tuple[JudgedClaim, ...]
    flags: tuple[Flag, ...]
    """Everything that any of the runs had to assume, once each."""

    def headline(self) -> str:
        """Return the question, whose answer is the heading of the runs."""
        return self.question.title

    def tables(self) -> list[TextTable]:
        """Return all runs below the answer, each usual claim with its verdict, and what all of it rests on."""
        return [self._runs_table(), *(TextTable("", sentences=(each,)) for each in self.remarks())]

    def remarks(self) -> tuple[str, ...]:
        """Return each usual claim with its verdict, and what all of it rests on."""
        said = [f"Introductions say: {each.claim} Here that is {each.verdict}. {each.found}" for each in self.judged]
        if self.flags:
            said.append(f"This rests on what is assumed: {'; '.join(dict.fromkeys(flag.message for flag in self.flags))}.")
        return tuple(said)

    def _runs_table(self) -> TextTable:
        question = self.question
        cases, points, names = question.case_labels, question.point_labels, [name for name, _ in question.columns]
        several, odd = len(cases) > 1, any(row.status != "ok" for row in self.rows)
        columns = (*(("case",) if several else ()), question.axis, *(f">{_heading(name)}" for name in names), *(("",) if odd else ()))
        # A column has one unit.
        figures = zip(*(shown_alike(name, [three_digits(row.columns.get(name)) for row in self.rows]) for name in names), strict=True)
        cells: list[tuple[str, ...]] = []
        for row, shown in zip(self.rows, figures, strict=True):
            labels = (*((cases[row.case],) if several else ()), points[row.point])
            last = (("" if row.status == "ok" else row.status),) if odd else ()
            cells.append((*labels, *shown, *last))
        return TextTable(self.answer, columns, tuple(cells))

    def records(self) -> dict[str, list[dict[str, str | float | None]]]:
        """Return the runs and the claims in full, in SI units, by the name of their table."""
        runs: list[dict[str, str | float | None]] = [
            {
                "case": row.case,
                "point": row.point,
                "status": row.status,
                "reason": row.reason or None,
                **{name: row.columns.get(name) for name, _ in self.question.columns},
            }
            for row in self.rows
        ]
        return {"runs": runs, "claims": [dict(asdict(each)) for each in self.judged]}

    def to_dict(self) -> dict[str, object]:
        """Return the document that ``study --json`` prints."""
        return {
            "schema_version": 1,
            "name": self.question.name,
            "title": self.question.title,
            "findings": [self.answer],
            "notes": list(self.remarks()),
            **self.records(),
        }


def _heading(name: str) -> str:
    for unit in ("_s", "_bytes", "_fraction"):
        if name.endswith(unit) and not name.endswith("_per_s"):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_per_s", "/s").replace("_", " ")


@lru_cache
def question_titles() -> Mapping[str, str]:
    """Return what the shipped questions ask, by their names."""
    documents = {path.stem: read_document(path).data for path in sorted(shipped_studies().glob("*.yaml"))}
    return MappingProxyType({name: str(data["question"]) for name, data in documents.items() if KEY in data})


def read_question(name: str | Path) -> StudyQuestion:
    """Return a question by the name of a shipped one, or from a file.

    Raises
    ------
    ScenarioError
        With the first mistake, its place and what would be right.
    """
    text = str(name)
    shipped = not isinstance(name, Path) and not text.endswith(_SUFFIXES) and "/" not in text
    if shipped and text not in question_titles():
        raise ScenarioError(f"unknown study '{text}'", hint=choices_hint(text, question_titles()))
    study = read_study(read_document(shipped_studies() / f"{text}.yaml" if shipped else Path(text)), StudyRequest())
    spec, points = study.spec, study.named_points()
    missing = next((key for key in NEEDED if key not in study.document.data), None)
    if spec.question is None or spec.picture is None or missing is not None:
        raise study.mistake((missing or "question",), "is missing", "ask with sweep or what-if, or add it")
    if spec.grid or spec.zip:
        raise study.mistake(("grid" if spec.grid else "zip",), "claims are about cases and points, not axes", "ask with sweep")
    odd = next((case for case in spec.cases if not _WORD.fullmatch(case)), None)
    if odd is not None:
        raise study.mistake(("cases", odd), f"'{odd}' is no name in an expression", "begin with a letter, go on with letters, digits and _")
    columns = _quantities(study, "columns", dict.fromkeys(figure_names(), False))
    names = {f"{point.name}.{name}": False for point in points for name, _ in columns}
    values = _quantities(study, "values", names)
    answer = [_sentence(study, ("answer", index), ("when", "say"), names) for index in range(len(spec.answer))]
    claims = [_sentence(study, (KEY, index), ("holds", "found"), names) for index in range(len(spec.claims))]
    _check_picture(study, spec.picture)
    return StudyQuestion(
        name=spec.name or Path(study.document.name).stem,
        title=spec.question,
        study=study,
        picture=spec.picture,
        points=points,
        columns=columns,
        values=values,
        answer=tuple(answer),
        claims=tuple(claims),
    )


def _quantities(study: Study, key: str, names: dict[str, bool]) -> tuple[tuple[str, Quantity], ...]:
    """Return the named quantities below a key; of values each may be used by those after it."""
    found: list[tuple[str, Quantity]] = []
    for name in study.spec.columns if key == "columns" else study.spec.values:
        quantity = study.written(key, name).quantity(names)
        said = measure_of_key(name)
        if said != quantity.measure:
            message = f"the name says {said}, and the expression is {quantity.measure}"
            raise study.mistake((key, name), message, "end the name in the unit")
        found.append((name, quantity))
        if key == "values":
            names[name] = False
    return tuple(found)


def _sentence(study: Study, path: tuple[str | int, ...], keys: tuple[str, str], names: Mapping[str, bool]) -> Sentence:
    """Return a sentence whose values all exist, and its condition."""
    condition = study.written(*path, keys[0]).condition(names)
    said = study.written(*path, keys[1])
    for name in _VALUE.findall(said.text):
        if name not in names:
            raise said.mistake(ScenarioError(f"there is no value '{name}'", hint="define it below values"))
    return Sentence(when=condition, say=said.text)


def _check_picture(study: Study, picture: PictureSpec) -> None:
    for index, panel in enumerate(picture.panels):
        if panel.column not in study.spec.columns:
            raise study.mistake(("picture", "panels", index, "column"), f"there is no column '{panel.column}'", "name one of columns")
        unknown = [case for case in panel.cases or () if case not in study.spec.cases]
        if unknown:
            raise study.mistake(("picture", "panels", index, "cases"), f"there is no case '{unknown[0]}'", "name some of cases")


def filled(text: str, values: Mapping[str, float]) -> str:
    """Return a sentence with its values as people read them, with three digits.

    Examples
    --------
    >>> filled("{gain} times in {step_s}, {idle_fraction} idle", {"gain": 2.0, "step_s": 0.012346, "idle_fraction": 0.2512})
    '2 times in 12.3 ms, 25.1 % idle'
    """
    return _VALUE.sub(lambda found: short(found[1], values[found[1]]), text)


def answered_question(question: StudyQuestion) -> StudyAnswer:
    """Return the answer to a question, from runs made now.

    Raises
    ------
    ScenarioError
        When a run is asked for wrongly, a sentence asks for a figure of one that cannot be made, or none of the answers is true.
    """
    study = question.study
    for point in question.points:
        try:
            study.base.any_scenario(point.values)
        except ScenarioError as error:
            place = Place(file=f"{question.name}, run {point.name}")
            raise ScenarioError(error.message, field=error.field, hint=error.hint, place=place) from error
    found = evaluated(study.base, question.points)
    rows = tuple(_row(question, each) for each in found)
    values = {f"{row.case}.{row.point}.{name}": value for row in rows for name, value in row.columns.items()}
    for name, quantity in question.values:
        _check_present(quantity.names, values, f"values.{name}", rows)
        values[name] = quantity.value(values)
    said = [sentence for sentence in question.answer if _holds(sentence, values, "answer", rows)]
    if not said:
        raise ScenarioError("none of the answers is true in these runs", field="answer", hint="say what is true instead")
    judged = [
        JudgedClaim(
            claim=spec.says,
            verdict=RIGHT if _holds(claim, values, KEY, rows) else WRONG,
            condition=claim.when.text,
            found=filled(claim.say, values),
        )
        for spec, claim in zip(study.spec.claims, question.claims, strict=True)
    ]
    return StudyAnswer(
        question=question,
        rows=rows,
        values={name: values[name] for name, _ in question.values},
        answer=filled(said[0].say, values),
        judged=tuple(judged),
        flags=tuple(dict.fromkeys(flag for row in found for flag in row.outcome.flags)),
    )


def _row(question: StudyQuestion, found: ResultRow) -> StudyRow:
    outcome = found.outcome
    if outcome.status == "failed":
        raise RuntimeError(f"{question.name}, run {found.point.name}: {outcome.reason}")
    columns = {name: column.value(outcome.figures) for name, column in question.columns if set(column.names) <= outcome.figures.keys()}
    status = {"ok": "ok", "unmet": "ok"}.get(outcome.status, "does not fit" if columns else "cannot run")
    case, _, point = found.point.name.partition(".")
    return StudyRow(case=case, point=point, status=status, reason=outcome.reason, columns=columns)


def _holds(sentence: Sentence, values: Mapping[str, float], field: str, rows: Sequence[StudyRow]) -> bool:
    _check_present(sentence.when.names, values, field, rows)
    return sentence.when.holds(values)


def _check_present(names: Sequence[str], values: Mapping[str, float], field: str, rows: Sequence[StudyRow]) -> None:
    for name in names:
        if name not in values:
            reasons = (row.reason for row in rows if name.startswith(f"{row.case}.{row.point}.") and row.reason)
            why = next(reasons, "the run has no such figure")
            raise ScenarioError(f"'{name}' has no value: {why}", field=field, hint="ask about another run or figure")
