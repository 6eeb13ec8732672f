"""``clustersim explain``."""

from __future__ import annotations

import sys

from clustersim.cli.terminal import notice, print_table, tells_a_person, write_json, write_out
from clustersim.errors import EXIT_OK
from clustersim.studies.explaining.explanation import explain
from clustersim.studies.explaining.text import document, lines, tables

_STATUS_WIDTH = 60


def explain_command(source: str, overrides: tuple[str, ...], *, as_json: bool, seed: int, changes: bool) -> int:
    """Explain a run, print it, and return the exit code."""
    explanation = explain(source, overrides, seed=seed, changes=changes, on_candidate=_tell if tells_a_person() else None)
    if tells_a_person():
        sys.stderr.write("\r\x1b[K")
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


def _tell(number: int, total: int, what: str) -> None:
    """Show which change is being replayed, on one line of a terminal."""
    text = f"change {number}/{total}: {what}"
    sys.stderr.write(f"\r\x1b[K{text[:_STATUS_WIDTH]}")
    sys.stderr.flush()
