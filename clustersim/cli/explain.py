"""``clustersim explain``."""

from __future__ import annotations

from clustersim.apps.explain.explanation import document, explain, lines, tables
from clustersim.apps.explain.served import ServedExplanation, served_document, served_lines, served_tables
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.errors import EXIT_OK


def explain_command(source: str, overrides: tuple[str, ...], *, as_json: bool, seed: int, changes: bool) -> int:
    """Explain a run, print it, and return the exit code."""
    with watched(shows=not as_json):
        explanation = explain(source, overrides, seed=seed, changes=changes)
    served = isinstance(explanation, ServedExplanation)
    if as_json:
        write_json(served_document(explanation) if served else document(explanation))
        return EXIT_OK
    for line in served_lines(explanation) if served else lines(explanation):
        write_out(f"{line}\n")
    for table in served_tables(explanation) if served else tables(explanation):
        write_out(f"\n{table.heading}\n")
        print_table(table.columns, table.rows)
    if not explanation.result.metrics.memory.fits:
        notice("This run does not fit in memory; changes are compared with it all the same.")
    return EXIT_OK
