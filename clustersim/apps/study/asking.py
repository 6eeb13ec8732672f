"""Run what a question needs, and say what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustersim.apps.run.running import run_built
from clustersim.apps.study.figures import outcome_with_sums
from clustersim.apps.study.question_file import StudyQuestion
from clustersim.apps.study.sentences import filled
from clustersim.apps.sweep.point import PointOutcome, reason_of
from clustersim.config.build import build
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.notices import Flag


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
    """A usual claim, and what the runs say about it."""

    says: str
    holds: bool
    condition: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyAnswer:
    """Answer that the runs give."""

    question: StudyQuestion
    rows: tuple[StudyRow, ...]
    values: Mapping[str, float]
    answer: str
    judged: tuple[JudgedClaim, ...]
    flags: tuple[Flag, ...]
    """Everything that any of the runs had to assume, once each."""


def answered_question(question: StudyQuestion) -> StudyAnswer:
    """Return the answer to a question, from runs made now.

    Raises
    ------
    ScenarioError
        When a run is asked for wrongly, a sentence asks for a figure of one that cannot be made, or none of the answers is true.
    """
    flags: dict[Flag, None] = {}
    rows = tuple(_row(question, case, point, flags) for case, point in question.cells)
    values = {f"{row.case}.{row.point}.{name}": value for row in rows for name, value in row.columns.items()}
    for name, quantity in question.values:
        _check_present(quantity.names, values, f"values.{name}", rows)
        values[name] = quantity.value(values)
    said: list[str] = []
    for saying in question.answer:
        _check_present(saying.when.names, values, "answer", rows)
        if saying.when.holds(values):
            said.append(filled(saying.say, values))
    if not said:
        raise ScenarioError("none of the answers is true in these runs", field="answer", hint="say what is true instead")
    judged: list[JudgedClaim] = []
    for claim in question.claims:
        _check_present(claim.holds.names, values, "claims", rows)
        judged.append(
            JudgedClaim(says=claim.says, holds=claim.holds.holds(values), condition=claim.holds.text, found=filled(claim.found, values))
        )
    named = {name: values[name] for name, _ in question.values}
    return StudyAnswer(question=question, rows=rows, values=named, answer=said[0], judged=tuple(judged), flags=tuple(flags))


def _row(question: StudyQuestion, case: str, point: str, flags: dict[Flag, None]) -> StudyRow:
    outcome = _outcome(question, case, point, flags)
    columns = {name: column.value(outcome.figures) for name, column in question.columns if set(column.names) <= outcome.figures.keys()}
    status = {"ok": "ok", "unmet": "ok"}.get(outcome.status, "does not fit" if columns else "cannot run")
    return StudyRow(case=case, point=point, status=status, reason=outcome.reason, columns=columns)


def _outcome(question: StudyQuestion, case: str, point: str, flags: dict[Flag, None]) -> PointOutcome:
    try:
        scenario = question.base.scenario(question.changes(case, point))
    except ScenarioError as error:
        place = Place(file=f"{question.spec.name}, run {case}.{point}")
        raise ScenarioError(error.message, field=error.field, hint=error.hint, place=place) from error
    try:
        result = run_built(build(scenario), seed=question.base.seed)
    except InfeasibleError as error:
        return PointOutcome(status="infeasible", reason=str(error))
    except ScenarioError as error:
        return PointOutcome(status="infeasible", reason=reason_of(error))
    flags.update(dict.fromkeys(result.flags))
    return outcome_with_sums(result)


def _check_present(names: tuple[str, ...], values: Mapping[str, float], field: str, rows: tuple[StudyRow, ...]) -> None:
    for name in names:
        if name not in values:
            why = next(
                (row.reason for row in rows if name.startswith(f"{row.case}.{row.point}.") and row.reason), "the run has no such figure"
            )
            raise ScenarioError(f"'{name}' has no value: {why}", field=field, hint="ask about another run or figure")
