"""``clustersim plot`` and ``clustersim report``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from clustersim.apps.plot.plots import FORMATS, draw_plot, report_page
from clustersim.cli.options import JobsOption, JsonOption, SeedOption, SetOption, named_file
from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_OK
from clustersim.progress import phase
from clustersim.report.plots.write import write_drawn


def plot_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="Of training pipeline, timeline, breakdown, communication, links, topology, memory, memory_over_time, roofline, cost,"
            " goodput, strong_scaling, weak_scaling; of a sweep heatmap, lines, pareto; of serving latency, timeline, kv,"
            " throughput_latency; of a what-if tornado; validation.",
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Run directories, scenario files or shipped examples; for heatmap, lines and pareto the directory or the CSV of a sweep.",
        ),
    ] = None,
    *,
    set_: SetOption = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write, .png or .svg; default KIND.png.")] = None,
    figure: Annotated[str, typer.Option(metavar="NAME", help="Figure that heatmap and lines show, such as tokens_per_s.")] = "",
    jobs: JobsOption = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> int:
    """Draw a plot of runs, of a sweep or of predictions."""
    path = named_file(out or f"{kind}.png", FORMATS, "--out")
    with watched():
        asked = partial(draw_plot, kind, tuple(runs or ()), tuple(set_ or ()), figure=figure, seed=seed, jobs=jobs)
        with phase("draw"):
            title = write_drawn(asked, path, "--out")
    if json:
        write_json({"kind": kind, "file": str(path), "title": title})
    notice(f"wrote {path}")
    return EXIT_OK


def report_command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Run directories, scenario files or shipped examples; or the table of a sweep.")
    ],
    *,
    set_: SetOption = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")] = "report.html",
    static: Annotated[bool, typer.Option("--static", help="Static pictures, as without the html extra.")] = False,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> int:
    """Write an HTML page of a run, of several runs, or of a sweep.

    The page is one file that opens without a network. Several runs are side by side.
    """
    path = named_file(out, (".html", ".htm"), "--out")
    with watched():
        with phase("report"):
            text = report_page(tuple(runs), tuple(set_ or ()), seed=seed, zooms=False if static else None)
        write_text(path, text)
    if json:
        write_json({"file": str(path), "size_bytes": path.stat().st_size})
    notice(f"wrote {path}")
    return EXIT_OK
