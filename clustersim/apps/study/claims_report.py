"""The answer to a question as findings, tables and a picture, in a folder, and as the block of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.study.claims import StudyAnswer, StudyRow
from clustersim.errors import ScenarioError
from clustersim.report.facts import holds_memory
from clustersim.report.pictures import Chart, ChartPanel, Series, Unit
from clustersim.report.plots.write import write_charts
from clustersim.report.tables import write_table
from clustersim.report.text_tables import TextTable, short, shown_alike, three_digits

_UNITS: Final[Mapping[str, Unit]] = MappingProxyType({"_per_s": "", "_s": "s", "_bytes": "B", "_fraction": "%"})
"""By how the name of a column ends."""


Cell = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Columns in SI units, for a file; a cell that is None stays empty."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows as mappings from the names of their columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


def runs_table(answer: StudyAnswer) -> TextTable:
    """Return all runs below the answer."""
    question = answer.question
    cases, points, names = question.case_labels, question.point_labels, [name for name, _ in question.columns]
    several, odd = len(cases) > 1, any(row.status != "ok" for row in answer.rows)
    columns = (*(("case",) if several else ()), question.axis, *(f">{_heading(name)}" for name in names), *(("",) if odd else ()))
    # A column has one unit.
    figures = zip(*(shown_alike(name, [three_digits(row.columns.get(name)) for row in answer.rows]) for name in names), strict=True)
    cells: list[tuple[str, ...]] = []
    for row, shown in zip(answer.rows, figures, strict=True):
        labels = (*((cases[row.case],) if several else ()), points[row.point])
        last = (("" if row.status == "ok" else row.status),) if odd else ()
        cells.append((*labels, *shown, *last))
    return TextTable(answer.answer, columns, tuple(cells))


def notes(answer: StudyAnswer) -> tuple[str, ...]:
    """Return each usual claim with its verdict, and what all of it rests on."""
    said = [f"Introductions say: {each.says} Here that is {each.verdict}. {each.found}" for each in answer.judged]
    if answer.flags:
        said.append(f"This rests on what is assumed: {'; '.join(dict.fromkeys(flag.message for flag in answer.flags))}.")
    return tuple(said)


def data_tables(answer: StudyAnswer) -> tuple[DataTable, DataTable]:
    """Return the runs and the claims in full."""
    names = [name for name, _ in answer.question.columns]
    runs = tuple((row.case, row.point, row.status, row.reason or None, *(row.columns.get(name) for name in names)) for row in answer.rows)
    claims = tuple((each.says, each.verdict, each.condition, each.found) for each in answer.judged)
    return (
        DataTable(name="runs", header=("case", "point", "status", "reason", *names), rows=runs),
        DataTable(name="claims", header=("claim", "verdict", "condition", "found"), rows=claims),
    )


def write_study(answer: StudyAnswer, folder: Path) -> None:
    """Write tables and picture of a study into a folder, over those of an earlier run; equal studies give equal bytes.

    Raises
    ------
    ScenarioError
        When the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in data_tables(answer):
            write_table(folder / f"{table.name}.csv", table.header, table.rows)
        write_charts([chart_of(answer)], folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write the study into {folder}: {reason}", hint="choose another folder with --out") from error


def _heading(name: str) -> str:
    for unit in ("_s", "_bytes", "_fraction"):
        if name.endswith(unit) and not name.endswith("_per_s"):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_per_s", "/s").replace("_", " ")


def chart_of(answer: StudyAnswer) -> Chart:
    """Return the picture of the answer."""
    question = answer.question
    cases, labels = question.case_labels, tuple(question.point_labels.values())
    rows = {(row.case, row.point): row for row in answer.rows}
    panels = tuple(
        ChartPanel(
            label=panel.label,
            unit=_unit(panel.column),
            series=tuple(
                _series(label, [rows.get((case, point)) for point in question.point_labels], panel.column, index)
                for index, (case, label) in enumerate(cases.items())
                if panel.cases is None or case in panel.cases
            ),
        )
        for panel in question.picture.panels
    )
    numbers = all(label.isdigit() and int(label) > 0 for label in labels) and len(labels) > 1
    return Chart(
        name=question.name,
        finding=answer.answer,
        subtitle=question.picture.subtitle,
        axis=question.axis,
        points=labels,
        places=tuple(float(label) for label in labels) if numbers else None,
        panels=panels,
    )


def _unit(column: str) -> Unit:
    if holds_memory(column):
        return "GiB"
    for end, unit in _UNITS.items():
        if column.endswith(end):
            return unit
    return ""


def _series(label: str, rows: Sequence[StudyRow | None], column: str, colour: int) -> Series:
    scale = 2**30 if holds_memory(column) else 1.0
    found = (None if row is None else row.columns.get(column) for row in rows)
    values = tuple(None if value is None else value / scale for value in found)
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
