"""``clustersim measure``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.calibrate.measured_folder import script
from clustersim.cli.terminal import notice, write_out
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK


def measure_command(
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Script to write, such as measure.py; default: stdout.")
    ] = None,
) -> int:
    """Write a script of microbenchmarks for one node.

    It needs PyTorch alone; `calibrate --measured` reads what it writes.
    """
    if out is None:
        write_out(script())
        return EXIT_OK
    check_folder(Path(out))
    write_text(Path(out), script())
    notice(f"wrote {out}; run it on a node with: python {out}")
    return EXIT_OK
