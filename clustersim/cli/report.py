"""``clustersim report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase
from clustersim.studies.drawing.pages import report_page


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of ``report``."""

    overrides: tuple[str, ...]
    out: str
    seed: int
    static: bool
    as_json: bool


def report_command(sources: tuple[str, ...], options: ReportOptions) -> int:
    """Write a page, and return the exit code."""
    path = Path(options.out)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ScenarioError(f"'{path}' is no name of a page", hint="name a file that ends in .html")
    if not path.parent.is_dir():
        raise ScenarioError(f"cannot write {path}: its folder does not exist", hint="choose another file with --out")
    with watched():
        with phase("report"):
            text = report_page(sources, options.overrides, seed=options.seed, zooms=False if options.static else None)
        write_text(path, text)
    if options.as_json:
        write_json({"file": str(path), "size_bytes": path.stat().st_size})
    notice(f"wrote {path}")
    return EXIT_OK
