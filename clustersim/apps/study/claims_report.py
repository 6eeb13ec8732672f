"""The answer to a question as tables and a picture in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.study.claims import StudyAnswer, StudyRow
from clustersim.errors import ScenarioError
from clustersim.report.facts import holds_memory
from clustersim.report.pictures import Chart, ChartPanel, Series, Unit
from clustersim.report.plots.write import write_charts
from clustersim.report.tables import write_table
from clustersim.report.text_tables import short

_UNITS: Final[Mapping[str, Unit]] = MappingProxyType({"_per_s": "", "_s": "s", "_bytes": "B", "_fraction": "%"})
"""By how the name of a column ends."""


def write_study(answer: StudyAnswer, folder: Path) -> None:
    """Write tables and picture of a study into a folder, over those of an earlier run; equal studies give equal bytes.

    Raises
    ------
    ScenarioError
        When the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, records in answer.records().items():
            write_table(folder / f"{name}.csv", tuple(records[0]) if records else (), (tuple(each.values()) for each in records))
        write_charts([chart_of(answer)], folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write the study into {folder}: {reason}", hint="choose another folder with --out") from error


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
