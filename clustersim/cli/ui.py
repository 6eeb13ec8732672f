"""``clustersim ui``."""

from __future__ import annotations

from pathlib import Path

from clustersim.apps.ui.local_server import make_app, serve
from clustersim.cli.terminal import notice
from clustersim.errors import EXIT_OK


def ui_command(first: str, *, port: int, runs: str) -> int:
    """Show the page until Ctrl-C, and return the exit code."""
    server = make_app(runs=Path(runs), first=first)
    serve(server, port, lambda address: notice(f"open {address}  (Ctrl-C ends)"))
    return EXIT_OK
