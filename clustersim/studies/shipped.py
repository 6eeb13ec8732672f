"""Studies by name, run and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clustersim.documents.check import choices_hint
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.report.plots.write import write_charts, write_pictures
from clustersim.report.tables import write_table
from clustersim.studies.comparison_file import COMPARISON, read_comparison
from clustersim.studies.comparison_report import reported
from clustersim.studies.parameter_server_or_ring import compare
from clustersim.studies.questions.asking import answered_question
from clustersim.studies.questions.question_file import KEY, question_names, question_titles, read_question
from clustersim.studies.questions.question_report import reported_question
from clustersim.studies.reported import Reported
from clustersim.studies.row_sources import read_speed_source, speed_source_names
from clustersim.studies.speed_up_report import reported_rows

_SUFFIXES: Final = (".yaml", ".yml")


def study_names() -> tuple[str, ...]:
    """Return the names of the shipped studies."""
    return (COMPARISON, *question_names(), *speed_source_names())


def study_title(name: str) -> str:
    """Return what a shipped study asks, or what it compares with."""
    if name == COMPARISON:
        return read_comparison().spec.question
    return question_titles().get(name) or read_speed_source(name).spec.title


def run_study(name: str) -> Reported:
    """Return what a study tells.

    Parameters
    ----------
    name
        Of a shipped study, or the path of a file of the same form.

    Raises
    ------
    ScenarioError
        When there is no such study, or its file cannot be used.
    """
    if name.endswith(_SUFFIXES) or "/" in name:
        path = Path(name)
        keys = read_document(path).data
        if KEY in keys:
            return reported_question(answered_question(read_question(path)))
        return reported_rows(path) if "rows" in keys else reported(compare(read_comparison(path)))
    if name not in study_names():
        raise ScenarioError(f"unknown study '{name}'", hint=choices_hint(name, study_names()))
    if name in question_names():
        return reported_question(answered_question(read_question(name)))
    return reported(compare(read_comparison())) if name == COMPARISON else reported_rows(name)


def write_study(study: Reported, folder: Path) -> None:
    """Write the tables and pictures of a study into a folder, over those of an earlier run; equal studies give equal bytes.

    Raises
    ------
    ScenarioError
        When the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in study.tables:
            write_table(folder / f"{table.name}.csv", table.header, table.rows)
        write_pictures(study.pictures, folder)
        write_charts(study.charts, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write the study into {folder}: {reason}", hint="choose another folder with --out") from error
