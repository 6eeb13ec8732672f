"""``clustersim explain``."""

from __future__ import annotations

from clustersim.apps.explain.explanation import explain
from clustersim.apps.explain.explanation_text import document, lines, tables
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_OK


def explain_command(source: str, overrides: tuple[str, ...], *, as_json: bool, seed: int, changes: bool) -> int:
    """Explain a run, print it, and return the exit code."""
    with watched(shows=not as_json):
        explanation = explain(source, overrides, seed=seed, changes=changes)
    if as_json:
        write_json(document(explanation))
        return EXIT_OK
    for line in lines(explanation):
        write_out(f"{line}\n")
    for table in tables(explanation):
        write_out(f"\n{table.heading}\n")
        print_table(table.columns, table.rows)
    if not explanation.result.metrics.memory.fits:
        notice("This run does not fit in memory; changes are compared with it all the same.")
    return EXIT_OK
