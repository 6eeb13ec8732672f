"""``clustersim runs``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.compare.run_directories import COLUMNS, kept_runs
from clustersim.cli.options import JsonOption
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK


def runs_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that runs were written to.")] = "runs",
    *,
    json: JsonOption = False,
) -> int:
    """List earlier runs, the latest first."""
    found = kept_runs(Path(folder), notice)
    if json:
        write_json([asdict(run) for run in found])
    elif found:
        print_table(COLUMNS, [run.cells for run in found])
    else:
        notice(f"{folder} keeps no run")
    return EXIT_OK
