"""``clustersim ui``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.ui.local_server import make_app, serve
from clustersim.apps.ui.workers import make_ready
from clustersim.cli.terminal import notice
from clustersim.errors import EXIT_OK


def ui_command(
    scenario: Annotated[
        str, typer.Argument(metavar="EXAMPLE", help="A shipped example to begin with, or 'run NAME/HASH'.")
    ] = "llama3-70b-h100-512",
    *,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0 for a free one.")] = 8050,
    runs: Annotated[str, typer.Option(metavar="DIR", help="Folder of runs that can be opened.")] = "runs",
) -> int:
    """Open a page to change and run a scenario.

    Results appear at once. The page is for a browser on this machine only.
    """
    # Processes load their modules while this one loads its own.
    make_ready()
    from clustersim.apps.ui.contained import start

    start(scenario, Path(runs))
    notice(f"making the page of {scenario}; its address follows in a few seconds")
    server = make_app(runs=Path(runs), first=scenario)
    serve(server, port, lambda address: notice(f"open {address}  (Ctrl-C ends)"))
    return EXIT_OK
