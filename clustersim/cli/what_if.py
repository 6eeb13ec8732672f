"""``clustersim what-if``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.records.recorded_answer import COLUMNS, answered_records, recorded_files
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.tornado_picture import tornado_of
from clustersim.apps.study.what_if import WhatIfAnswer, answered, asked_what_if
from clustersim.cli.options import JobsOption, JsonOption, SeedOption, SetOption, named_file
from clustersim.cli.terminal import notice, print_table, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError


def what_if_command(
    source: Annotated[
        list[str], typer.Argument(metavar="SCENARIO|FILE", help="A scenario as for run, a file with cases, records or traces of a job.")
    ],
    *,
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME:KEY=VALUE,...", help="Changes under a name, such as wide:strategy.tp=8. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="What a case must meet, such as 'memory_fraction <= 0.9'. Repeatable.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What cases are judged by; default tokens_per_s; of a service output_tokens_per_s_per_gpu, at a rate e2e_s.mean.",
        ),
    ] = None,
    break_even: Annotated[
        str | None, typer.Option(metavar="KEY=LOW..HIGH", help="Where the two best cases are equally good while a key goes so far.")
    ] = None,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW..HIGH", help="A figure to vary; hardware: each rate by 20 % up and down. Repeatable."),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="one (figure at a time), morris or sobol.")] = "one",
    samples: Annotated[int | None, typer.Option(metavar="N", min=2, help="Of morris (8) or sobol (32).")] = None,
    jobs: JobsOption = None,
    set_: SetOption = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the tornado, such as tornado.png.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> int:
    """Say which of some changes is best, and what that depends on.

    Also where another one becomes best.
    """
    asked = StudyRequest(
        cases=tuple(case or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        metric=metric,
        break_even=break_even,
        sensitivity=tuple(sensitivity or ()),
        method=method,
        samples=samples,
        jobs=jobs,
        seed=seed,
    )
    if plot is not None:
        named_file(plot, (".png", ".svg"), "--plot")
    if files := recorded_files(source):
        return _of_records(files, case or (), asked, plot=plot, as_json=json)
    first, *others = source
    if others:
        raise ScenarioError("only traces of one job are taken together", field=others[0], hint="name one scenario")
    question, options = asked_what_if(first, asked)
    if plot is not None and (not options.inputs or options.method is not None):
        raise ScenarioError("there is no tornado to draw", field="--plot", hint="add --sensitivity hardware, without --method")
    with watched():
        answer = answered(question, options)
    if json:
        write_json(answer.to_dict())
    else:
        _print(answer)
    if plot is not None and answer.sensitivity is not None:
        from clustersim.report.plots.tornado import write_tornado

        write_tornado(tornado_of(answer.to_dict()), Path(plot))
        notice(f"wrote {plot}")
    return EXIT_OK if answer.best is not None else EXIT_NO


def _of_records(sources: Sequence[str], cases: Sequence[str], asked: StudyRequest, *, plot: str | None, as_json: bool) -> int:
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
        answer = answered_records(sources, cases)
    if as_json:
        write_json(answer.to_dict())
    else:
        write_lines(answer.headline(), "")
        print_table(COLUMNS, answer.rows())
        for note in answer.notes:
            write_lines(note)
    return EXIT_OK


def _print(answer: WhatIfAnswer) -> None:
    write_lines(answer.headline())
    write_lines(*answer.lines(), piped=True)
    for table in answer.tables():
        write_out(f"\n{table.heading}\n" if table.heading else "\n")
        print_table(table.columns, table.rows)
