"""``clustersim runs``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from clustersim.apps.compare.run_directories import COLUMNS, kept_runs
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK


def runs_command(folder: str, *, as_json: bool) -> int:
    """List the runs that a folder keeps, the latest first, and return the exit code."""
    found = kept_runs(Path(folder), notice)
    if as_json:
        write_json([asdict(run) for run in found])
    elif found:
        print_table(COLUMNS, [run.cells for run in found])
    else:
        notice(f"{folder} keeps no run")
    return EXIT_OK
