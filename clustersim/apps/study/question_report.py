"""The answer to a question as findings, tables and a picture, and as the block of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from clustersim.apps.study.asking import JudgedClaim, StudyAnswer, StudyRow
from clustersim.apps.study.reported import Cell, Reported, ReportSection, ReportTable
from clustersim.apps.study.sentences import short
from clustersim.report.charts import Chart, ChartPanel, Series, Unit

RIGHT: Final = "right"
WRONG: Final = "wrong"
_UNITS: Final[Mapping[str, Unit]] = MappingProxyType({"_per_s": "", "_s": "s", "_bytes": "B", "_fraction": "%"})
"""By how the name of a column ends."""


def reported_question(answer: StudyAnswer) -> Reported:
    """Return what the runs tell: the answer with the table of all runs, and each usual claim with its verdict."""
    question = answer.question
    columns, cells = _cells(answer)
    return Reported(
        name=question.spec.name,
        title=question.spec.question,
        sections=(ReportSection(finding=answer.answer, columns=columns, cells=cells),),
        notes=(*(_note(each) for each in answer.judged), *_reservations(answer)),
        tables=(_results(answer), _claims(answer)),
        charts=(_chart(answer),),
    )


def page_block(answer: StudyAnswer) -> str:
    """Return the answer, the claims with their verdicts and the table as Markdown, as the page of the study has them."""
    columns, cells = _cells(answer)
    header = [column.removeprefix(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *cells))
    claims = "\n".join(f"| {each.says} | **{RIGHT if each.holds else WRONG}** | {each.found} |" for each in answer.judged)
    picture = f"```{{image}} ../_studies/{answer.question.spec.name}.png\n:alt: {answer.question.spec.question}\n```"
    table = f"| introductions say | here it is | because the runs show |\n| --- | --- | --- |\n{claims}"
    return f"*{answer.question.spec.question}*\n\n**{answer.answer}**\n\n{table}\n\n{picture}\n\n{rows}\n"


def _cells(answer: StudyAnswer) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    question = answer.question
    several = len(question.spec.cases) > 1
    names = [name for name, _ in question.columns]
    odd = any(row.status != "ok" for row in answer.rows)
    head = (*(("case",) if several else ()), question.spec.points.label)
    columns = (*head, *(f">{_heading(name)}" for name in names), *(("",) if odd else ()))
    cells: list[tuple[str, ...]] = []
    for row in answer.rows:
        labels = (*((question.case_label(row.case),) if several else ()), question.point_label(row.point))
        last = (("" if row.status == "ok" else row.status),) if odd else ()
        cells.append((*labels, *(short(name, row.columns.get(name)) for name in names), *last))
    return columns, tuple(cells)


def _heading(name: str) -> str:
    for unit in ("_s", "_bytes", "_fraction"):
        if name.endswith(unit) and not name.endswith("_per_s"):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_per_s", "/s").replace("_", " ")


def _note(judged: JudgedClaim) -> str:
    return f"Introductions say: {judged.says} Here that is {RIGHT if judged.holds else WRONG}. {judged.found}"


def _reservations(answer: StudyAnswer) -> Sequence[str]:
    return [f"This rests on what is assumed: {'; '.join(dict.fromkeys(flag.message for flag in answer.flags))}."] if answer.flags else []


def _results(answer: StudyAnswer) -> ReportTable:
    names = [name for name, _ in answer.question.columns]
    rows = tuple((row.case, row.point, row.status, row.reason or None, *(row.columns.get(name) for name in names)) for row in answer.rows)
    return ReportTable(name="runs", header=("case", "point", "status", "reason", *names), rows=rows)


def _claims(answer: StudyAnswer) -> ReportTable:
    rows: list[tuple[Cell, ...]] = [(each.says, RIGHT if each.holds else WRONG, each.condition, each.found) for each in answer.judged]
    return ReportTable(name="claims", header=("claim", "verdict", "condition", "found"), rows=tuple(rows))


def _chart(answer: StudyAnswer) -> Chart:
    question = answer.question
    points = tuple(question.spec.points.values)
    labels = tuple(question.point_label(point) for point in points)
    rows = {(row.case, row.point): row for row in answer.rows}
    panels = tuple(
        ChartPanel(
            label=panel.label,
            unit=_unit(panel.column),
            series=tuple(
                _series(question.case_label(case), [rows.get((case, point)) for point in points], panel.column, index)
                for index, case in enumerate(question.spec.cases)
                if panel.cases is None or case in panel.cases
            ),
        )
        for panel in question.spec.picture.panels
    )
    numbers = all(label.isdigit() and int(label) > 0 for label in labels) and len(labels) > 1
    return Chart(
        name=question.spec.name,
        finding=answer.answer,
        subtitle=question.spec.picture.subtitle,
        axis=question.spec.points.label,
        points=labels,
        places=tuple(float(label) for label in labels) if numbers else None,
        panels=panels,
    )


def _unit(column: str) -> Unit:
    for end, unit in _UNITS.items():
        if column.endswith(end):
            return unit
    return ""


def _series(label: str, rows: Sequence[StudyRow | None], column: str, colour: int) -> Series:
    values = tuple(None if row is None else row.columns.get(column) for row in rows)
    return Series(
        label=label,
        colour=colour,
        values=values,
        texts=tuple(_text(row, column) for row in rows),
        doubtful=tuple(row is not None and row.status != "ok" for row in rows),
    )


def _text(row: StudyRow | None, column: str) -> str:
    if row is None:
        return "not run"
    value = row.columns.get(column)
    if value is None:
        return row.status
    return short(column, value) + ("" if row.status == "ok" else ", does not fit")
