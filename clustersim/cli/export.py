"""``clustersim export``."""

from __future__ import annotations

from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_OK
from clustersim.progress import phase
from clustersim.studies.drawing.exports import export


def export_command(source: str, form: str, *, overrides: tuple[str, ...], out: str | None, seed: int, as_json: bool) -> int:
    """Write the timeline of a run for another tool, and return the exit code."""
    with watched(), phase("export"):
        path = export(source, form, out, overrides, seed=seed)
    if as_json:
        write_json({"format": form, "file": str(path)})
    notice(f"wrote {path}")
    return EXIT_OK
