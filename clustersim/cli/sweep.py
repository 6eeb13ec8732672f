"""``clustersim sweep``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from clustersim.apps.study.pools import WorkerPool, check_executor, make_pool
from clustersim.apps.study.results import check_format
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.sweep import N_SHOWN, SweepResult, default_folder, run_sweep, value_text
from clustersim.apps.study.sweep_question import SweepQuestion, asked_sweep
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_NO, EXIT_OK, EXIT_PARTIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of ``sweep`` that do not say what is swept."""

    executor: str
    jobs: int | None
    out: str | None
    file_format: str
    as_json: bool
    dry_run: bool


def sweep_command(source: str, asked: StudyRequest, options: SweepOptions) -> int:
    """Run a sweep, or what an earlier one has left to do, print what it found, and return the exit code."""
    file_format = check_format(options.file_format)
    check_executor(options.executor)
    question = asked_sweep(source, asked)
    if options.dry_run:
        _print_points(question)
        return EXIT_OK
    folder = default_folder(question) if options.out is None else Path(options.out)

    def pool(n_points: int) -> AbstractContextManager[WorkerPool]:
        return make_pool(options.executor, options.jobs, n_points)

    try:
        with watched():
            result = run_sweep(question, pool, folder=folder, file_format=file_format)
    except KeyboardInterrupt:
        notice(f"what is finished is kept in {folder}; the same command goes on")
        raise
    if options.as_json:
        write_json(result.to_dict())
    else:
        _print(result)
    notice(f"wrote {result.path}")
    return _code(result)


def _print_points(question: SweepQuestion) -> None:
    keys = question.columns.keys
    rows = [(f"{point.number}", *(value_text(point.values.get(key, "")) for key in keys)) for point in question.points[:N_SHOWN]]
    write_out(f"{len(question.points):,} points\n\n")
    print_table(("point", *keys), rows)


def _print(result: SweepResult) -> None:
    write_out(f"{result.headline()}\n{result.count_line()}\n")
    table, reasons = result.table(), result.reason_lines()
    if table.rows:
        write_out("\n")
        print_table(table.columns, table.rows)
    if reasons:
        write_out("\n" + "".join(f"{line}\n" for line in reasons))


def _code(result: SweepResult) -> int:
    n_failed = result.count("failed")
    if n_failed:
        notice(f"{n_failed:,} of {len(result.rows):,} points failed; the same command tries them again")
        return EXIT_PARTIAL
    if result.best is None:
        notice("no: no point runs and meets every condition")
        return EXIT_NO
    return EXIT_OK
