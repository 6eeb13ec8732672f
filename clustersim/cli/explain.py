"""``clustersim explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.apps.explain.explanation import document, explain, lines, source_lines, tables
from clustersim.apps.explain.served_explanation import ServedExplanation, served_document, served_lines, served_tables
from clustersim.cli.options import JsonOption, SeedOption, SetOption
from clustersim.cli.terminal import notice, print_table, write_json, write_lines
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_OK


def explain_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")],
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
    changes: Annotated[bool, typer.Option("--changes/--no-changes", help="Look for changes that shorten the step.")] = True,
) -> int:
    """Say what sets the step time, and what would shorten it.

    Say also how figures and constants come about.
    """
    with watched(shows=not json):
        explanation = explain(run, tuple(set_ or ()), seed=seed, changes=changes)
    served = isinstance(explanation, ServedExplanation)
    if json:
        write_json(served_document(explanation) if served else document(explanation))
        return EXIT_OK
    write_lines(*(served_lines(explanation) if served else lines(explanation)), piped=True)
    for table in served_tables(explanation) if served else tables(explanation):
        write_lines("", table.heading, piped=True)
        print_table(table.columns, table.rows, piped=True)
    if not served:
        write_lines("", "Sources of constants", *source_lines(explanation), piped=True)
    if not explanation.result.metrics.memory.fits:
        notice("This run does not fit in memory; changes are compared with it all the same.")
    return EXIT_OK
