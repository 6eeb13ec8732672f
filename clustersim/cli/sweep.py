"""Studies of many runs: ``clustersim sweep``, ``study`` and ``what-if``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.apps.records.recorded_answer import answered_records, recorded_files
from clustersim.apps.study.axis import value_text
from clustersim.apps.study.claims import answered_question, question_titles, read_question
from clustersim.apps.study.claims_report import write_study
from clustersim.apps.study.pools import check_executor, make_pool
from clustersim.apps.study.results import check_format
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.sweep import N_SHOWN, SweepResult, default_folder, run_sweep
from clustersim.apps.study.sweep_question import SweepQuestion, asked_sweep
from clustersim.apps.study.what_if import answered, asked_what_if
from clustersim.cli.options import JobsOption, JsonOption, SeedOption, SetOption, WhereOption, named_file, refuse_given
from clustersim.cli.terminal import notice, print_answer, print_table, print_tables, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_NO, EXIT_OK, EXIT_PARTIAL, ScenarioError
from clustersim.report.plots.write import write_drawn
from clustersim.units.divisors import count_text


def sweep_command(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|STUDY", help="A scenario as for run, or a study: a path or a shipped name.")],
    *,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUES", help="Vary a key: 1,2,4 or 1..8 or 1..64 step 8 or 1..64 times 2. Repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="Leave out points, such as 'strategy.tp * strategy.pp > 64'. Repeatable.")
    ] = None,
    where: WhereOption = None,
    sort: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Sort by a metric, smallest first; -METRIC: largest first; default -tokens_per_s.")
    ] = None,
    metrics: Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Columns of the table; 'all' for every figure.")] = None,
    set_: SetOption = None,
    jobs: JobsOption = None,
    executor: Annotated[
        str, typer.Option(metavar="NAME", help="local, dask (a cluster on this machine), or dask:tcp://host:8786.")
    ] = "local",
    file_format: Annotated[str, typer.Option("--format", metavar="NAME", help="Format of the table: csv, parquet or duckdb.")] = "csv",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder; default runs/sweeps/NAME/HASH.")] = None,
    max_points: Annotated[int, typer.Option(metavar="N", min=1, help="Largest number of points.")] = 100_000,
    seed: SeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the points, run nothing.")] = False,
    json: JsonOption = False,
) -> int:
    """Run a scenario for all combinations of some values.

    The same command continues a sweep that was stopped.
    """
    check_format(file_format)
    check_executor(executor)
    asked = StudyRequest(
        over=tuple(over or ()),
        exclude=tuple(exclude or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        metric=sort,
        metrics=tuple(name.strip() for text in metrics or () for name in text.split(",")),
        most_points=max_points,
        seed=seed,
    )
    with watched():
        question = asked_sweep(source, asked)
    if dry_run:
        _print_points(question)
        return EXIT_OK
    folder = default_folder(question) if out is None else Path(out)
    try:
        with watched():
            result = run_sweep(question, partial(make_pool, executor, jobs), folder=folder, file_format=file_format)
    except KeyboardInterrupt:
        notice(f"what is finished is kept in {folder}; the same command goes on")
        raise
    _print_sweep(result, as_json=json)
    return _code(result)


def _print_sweep(result: SweepResult, *, as_json: bool) -> None:
    if as_json:
        write_json(result.to_dict())
    else:
        write_lines(result.headline(), *result.lines())
        print_tables([result.table(), *result.tables()[1:]])
    notice(f"wrote {result.path}")


def _print_points(question: SweepQuestion) -> None:
    keys = question.columns.keys
    rows = [(f"{point.number}", *(value_text(point.values.get(key, "")) for key in keys)) for point in question.points[:N_SHOWN]]
    write_out(f"{count_text(len(question.points), 'point')}\n\n")
    print_table(("point", *keys), rows)


def _code(result: SweepResult) -> int:
    n_failed = result.count("failed")
    if n_failed:
        notice(f"{n_failed:,} of {count_text(len(result.rows), 'point')} failed; the same command tries them again")
        return EXIT_PARTIAL
    if result.best is None:
        notice("no: no point runs and meets every condition")
        return EXIT_NO
    return EXIT_OK


STUDIES: Final = Path("runs") / "studies"
"""Default folder of results, with one folder per study."""


def study_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A shipped study or a path; without it, list the studies.")] = None,
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for tables and plots; default runs/studies/NAME.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Answer a question by many runs, with tables and plots."""
    if name is None:
        _list_studies(as_json=json)
        return EXIT_OK
    answer = answered_question(read_question(name))
    folder = STUDIES / answer.question.name if out is None else Path(out)
    write_study(answer, folder)
    print_answer(answer, as_json=json, piped=True)
    notice(f"wrote {folder}")
    return EXIT_OK


def _list_studies(*, as_json: bool) -> None:
    titles = question_titles()
    if as_json:
        write_json([{"name": name, "title": title} for name, title in titles.items()])
    else:
        print_table(("name", "about"), list(titles.items()))


def what_if_command(
    source: Annotated[
        list[str], typer.Argument(metavar="SCENARIO|FILE", help="A scenario as for run, a file with cases, records or traces of a job.")
    ],
    *,
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME:KEY=VALUE,...", help="Changes under a name, such as wide:strategy.tp=8. Repeatable.")
    ] = None,
    where: WhereOption = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What cases are judged by; default tokens_per_s; of a service output_tokens_per_s_per_gpu, at a rate e2e_s.mean.",
        ),
    ] = None,
    break_even: Annotated[
        str | None, typer.Option(metavar="KEY=LOW..HIGH", help="Find the value of a key at which the two best cases are equal.")
    ] = None,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW..HIGH", help="Vary a key; 'hardware' varies each rate by 20 % up and down. Repeatable."),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="Method of --sensitivity: one (key at a time), morris or sobol.")] = "one",
    samples: Annotated[int | None, typer.Option(metavar="N", min=2, help="Samples of morris (default 8) or sobol (default 32).")] = None,
    jobs: JobsOption = None,
    set_: SetOption = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the tornado, such as tornado.png.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> int:
    """Compare changes: which is best, and what that depends on.

    Break-even values show where another change becomes best.
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
    picture = None if plot is None else named_file(plot, (".png", ".svg"), "--plot")
    files = recorded_files(source)
    return _of_records(files, case or (), asked, plot=plot, as_json=json) if files else _of_scenario(source, asked, picture, as_json=json)


def _of_scenario(sources: Sequence[str], asked: StudyRequest, picture: Path | None, *, as_json: bool) -> int:
    first, *others = sources
    if others:
        raise ScenarioError("only traces of one job are taken together", field=others[0], hint="name one scenario")
    with watched():
        question, options = asked_what_if(first, asked)
    if picture and (not options.inputs or options.method is not None):
        raise ScenarioError("there is no tornado to draw", field="--plot", hint="add --sensitivity hardware, without --method")
    with watched():
        answer = answered(question, options)
    print_answer(answer, as_json=as_json)
    if picture and answer.sensitivity is not None:
        write_drawn(answer.plot.tornado, picture, "--plot")
        notice(f"wrote {picture}")
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
    refuse_given(given, beside="records of a job, which have no scenario", hint="leave it out; --case changes")
    with watched():
        answer = answered_records(sources, cases)
    print_answer(answer, as_json=as_json)
    return EXIT_OK
