"""``clustersim report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.plot.pages import report_page
from clustersim.cli.options import JsonOption, SeedOption, SetOption
from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase


def report_command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Run directories, scenario files or shipped examples; or the table of a sweep.")
    ],
    *,
    set_: SetOption = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")] = "report.html",
    static: Annotated[bool, typer.Option("--static", help="Pictures that stand still, as without the html extra.")] = False,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> int:
    """Write a page of one run, of several, or of a sweep.

    The page is one file that opens without a network. Several runs stand side by side.
    """
    path = Path(out)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ScenarioError(f"'{path}' is no name of a page", hint="name a file that ends in .html")
    check_folder(path)
    with watched():
        with phase("report"):
            text = report_page(tuple(runs), tuple(set_ or ()), seed=seed, zooms=False if static else None)
        write_text(path, text)
    if json:
        write_json({"file": str(path), "size_bytes": path.stat().st_size})
    notice(f"wrote {path}")
    return EXIT_OK
