"""``clustersim runs``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.compare.run_directories import COLUMNS, kept_runs, tag_run
from clustersim.apps.compare.side_by_side import load_run, side_by_side
from clustersim.cli.compare import print_runs
from clustersim.cli.options import JsonOption, refuse_given
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK, ScenarioError


def runs_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that runs were written to, or one of them.")] = "runs",
    *,
    tagged: Annotated[str | None, typer.Option(metavar="TAG", help="Only runs with this tag.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Tag the runs that are listed.")] = None,
    untag: Annotated[str | None, typer.Option(metavar="TAG", help="Remove a tag of them.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Hold them against the earliest, as 'compare' does.")] = False,
    json: JsonOption = False,
) -> int:
    """List, tag or compare earlier runs, the latest first."""
    found = kept_runs(Path(folder), notice)
    if tagged is not None:
        found = [run for run in found if tagged in run.tags]
    if tag is not None or untag is not None:
        found = [tag_run(run, add=tag, remove=untag) for run in found]
        if len(found) > 1:
            notice(f"{'tagged' if tag is not None else 'untagged'} all {len(found):,} runs below {folder}")
    if compare:
        refuse_given({"--json": json}, beside="--compare", hint="try: clustersim compare RUN... --json")
        if len(found) < 2:
            raise ScenarioError(f"{len(found)} of the runs can be compared, and two are needed", hint="name a folder with several runs")
        print_runs(side_by_side([load_run(run.folder) for run in reversed(found)]))
    elif json:
        write_json([asdict(run) for run in found])
    elif found:
        print_table(COLUMNS, [run.cells for run in found])
    else:
        notice(f"{folder} keeps no run" + ("" if tagged is None else f" tagged {tagged}"))
    return EXIT_OK
