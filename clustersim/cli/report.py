"""``clustersim report``."""

from __future__ import annotations

from pathlib import Path

from clustersim.apps.plot.pages import report_page
from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase


def report_command(sources: tuple[str, ...], overrides: tuple[str, ...], *, out: str, seed: int, static: bool, as_json: bool) -> int:
    """Write a page, and return the exit code."""
    path = Path(out)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ScenarioError(f"'{path}' is no name of a page", hint="name a file that ends in .html")
    check_folder(path)
    with watched():
        with phase("report"):
            text = report_page(sources, overrides, seed=seed, zooms=False if static else None)
        write_text(path, text)
    if as_json:
        write_json({"file": str(path), "size_bytes": path.stat().st_size})
    notice(f"wrote {path}")
    return EXIT_OK
