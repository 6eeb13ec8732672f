"""Studies by name, run and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clustersim.apps.study.asking import answered_question
from clustersim.apps.study.question_file import question_names, read_question
from clustersim.apps.study.question_report import reported_question
from clustersim.apps.study.reported import Reported
from clustersim.documents.check import choices_hint
from clustersim.errors import ScenarioError
from clustersim.report.plots.write import write_charts
from clustersim.report.tables import write_table

_SUFFIXES: Final = (".yaml", ".yml")


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
        return reported_question(answered_question(read_question(Path(name))))
    if name not in question_names():
        raise ScenarioError(f"unknown study '{name}'", hint=choices_hint(name, question_names()))
    return reported_question(answered_question(read_question(name)))


def write_study(study: Reported, folder: Path) -> None:
    """Write the tables and charts of a study into a folder, over those of an earlier run; equal studies give equal bytes.

    Raises
    ------
    ScenarioError
        When the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in study.tables:
            write_table(folder / f"{table.name}.csv", table.header, table.rows)
        write_charts(study.charts, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write the study into {folder}: {reason}", hint="choose another folder with --out") from error
