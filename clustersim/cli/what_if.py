"""``clustersim what-if``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustersim.apps.study.recorded_answer import COLUMNS, answered_records, recorded_files
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.tornado_picture import tornado_of
from clustersim.apps.study.what_if import WhatIfAnswer, answered, asked_matter
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError


def what_if_command(sources: Sequence[str], asked: StudyRequest, *, plot: str | None, as_json: bool) -> int:
    """Compare cases, say which is best and how sure that is, and return the exit code."""
    if plot is not None:
        _check_plot(Path(plot))
    if files := recorded_files(sources):
        return _of_records(files, asked, plot=plot, as_json=as_json)
    source, *others = sources
    if others:
        raise ScenarioError("only traces of one job are taken together", field=others[0], hint="name one scenario")
    matter, probe = asked_matter(source, asked)
    if plot is not None and (not probe.inputs or probe.method is not None):
        raise ScenarioError("there is no tornado to draw", field="--plot", hint="add --sensitivity hardware, without --method")
    with watched():
        answer = answered(matter, probe)
    if as_json:
        write_json(answer.to_dict())
    else:
        _print(answer)
    if plot is not None and answer.sensitivity is not None:
        from clustersim.report.plots.tornado import write_tornado

        write_tornado(tornado_of(answer.to_dict()), Path(plot))
        notice(f"wrote {plot}")
    return EXIT_OK if answer.best is not None else EXIT_NO


def _of_records(sources: Sequence[str], asked: StudyRequest, *, plot: str | None, as_json: bool) -> int:
    """Replay a recorded job in its cases, for which most options have no meaning."""
    given = {
        "--set": asked.changes,
        "--where": asked.where,
        "--metric": asked.metric,
        "--break-even": asked.break_even,
        "--sensitivity": asked.sensitivity,
        "--plot": plot,
    }
    for option, value in given.items():
        if value:
            raise ScenarioError(
                "records of a job have no scenario that this could be of", field=option, hint="leave it out; --case changes"
            )
    with watched():
        answer = answered_records(sources, asked.cases)
    if as_json:
        write_json(answer.to_dict())
    else:
        write_out(f"{answer.headline()}\n\n")
        print_table(COLUMNS, answer.rows())
        for note in answer.notes:
            write_out(f"{note}\n")
    return EXIT_OK


def _check_plot(path: Path) -> None:
    if path.suffix not in {".png", ".svg"}:
        raise ScenarioError(f"'{path}' does not say its format", field="--plot", hint="name a file that ends in .png or .svg")
    check_folder(path, field="--plot", hint="choose another file")


def _print(answer: WhatIfAnswer) -> None:
    write_out("\n".join((answer.headline(), *answer.lines(), "")))
    for table in answer.tables():
        write_out(f"\n{table.heading}\n" if table.heading else "\n")
        print_table(table.columns, table.rows)
