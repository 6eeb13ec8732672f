"""``clustersim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clustersim.apps.compare.side_by_side import ComparedRun, SideBySide, load_run, measured_run, predicted_run, side_by_side
from clustersim.apps.compare.side_by_side_text import csv_text, document, markdown, tables, verdicts
from clustersim.apps.importing.opening import open_measured
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.documents.check import did_you_mean
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK, ScenarioError

MOST: Final = 20
"""Runs that one table holds."""
FORMATS: Final = ("md", "csv", "json")


def compare_command(sources: tuple[str, ...], overrides: tuple[str, ...], *, formats: tuple[str, ...], out: str | None, seed: int) -> int:
    """Compare runs, print or write what differs, and return the exit code.

    Parameters
    ----------
    formats
        Those that were asked for; the table of the terminal if none.
    """
    chosen = _format(formats, out)
    logged = open_measured("".join(sources), overrides) if len(sources) == 1 else None
    if logged is None and len(sources) < 2:
        raise ScenarioError("one run alone cannot be compared", hint="name two or more run directories, scenario files or shipped examples")
    if len(sources) > MOST:
        raise ScenarioError(f"{len(sources)} runs do not fit side by side", hint=f"name at most {MOST}")
    runs: dict[str, ComparedRun] = {}
    for source in sources if logged is None else ():
        if source not in runs:
            runs[source] = load_run(source, overrides, seed=seed)
    if logged is not None:
        source = "".join(sources)
        compared = side_by_side([measured_run(source, *logged), predicted_run(source, logged[0], seed=seed)])
    else:
        compared = side_by_side([runs[source] for source in sources])
    if chosen is None:
        _print(compared)
    elif out is None:
        _write_out(compared, chosen)
    else:
        _write_file(compared, chosen, Path(out))
    return EXIT_OK


def _format(formats: Sequence[str], out: str | None) -> str | None:
    """Return the format to write, from the name of the file where none is asked for; before anything is simulated."""
    if out is not None:
        check_folder(Path(out))
    if len(formats) > 1:
        asked = " and ".join(f"--{each}" for each in formats)
        raise ScenarioError(f"{asked} exclude each other", hint="ask for one of them")
    if formats or out is None:
        return formats[0] if formats else None
    suffix = Path(out).suffix.removeprefix(".")
    if suffix not in FORMATS:
        near = did_you_mean(suffix, FORMATS) if suffix else None
        raise ScenarioError(f"'{out}' does not say its format", hint=near or "name a file that ends in .md, .csv or .json")
    return suffix


def _print(compared: SideBySide) -> None:
    for line in verdicts(compared):
        write_out(f"{line}\n")
    if not compared.differences:
        write_out("\nThe scenarios do not differ.\n")
    for table in tables(compared):
        write_out(f"\n{table.heading}\n")
        print_table(table.columns, table.rows)


def _write_out(compared: SideBySide, chosen: str) -> None:
    if chosen == "json":
        write_json(document(compared))
    else:
        write_out(markdown(compared) if chosen == "md" else csv_text(compared))


def _write_file(compared: SideBySide, chosen: str, path: Path) -> None:
    import json

    texts = {
        "md": lambda: markdown(compared),
        "csv": lambda: csv_text(compared),
        "json": lambda: json.dumps(document(compared), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    write_text(path, texts[chosen]())
    notice(f"wrote {path}")
