"""``clustersim compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.documents.check import did_you_mean
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.studies.side_by_side import Run, SideBySide, load_run, side_by_side
from clustersim.studies.side_by_side_text import csv_text, document, markdown, tables, verdicts

MOST: Final = 20
"""Runs that one table holds."""
FORMATS: Final = ("md", "csv", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """The options of ``compare``."""

    overrides: tuple[str, ...]
    formats: tuple[str, ...]
    """Those that were asked for; the table of the terminal if none."""
    out: str | None
    seed: int


def compare_command(sources: tuple[str, ...], options: CompareOptions) -> int:
    """Compare runs, print or write what differs, and return the exit code."""
    chosen = _format(options)
    if len(sources) < 2:
        raise ScenarioError("one run alone cannot be compared", hint="name two or more run directories, scenario files or shipped examples")
    if len(sources) > MOST:
        raise ScenarioError(f"{len(sources)} runs do not fit side by side", hint=f"name at most {MOST}")
    runs: dict[str, Run] = {}
    for source in sources:
        if source not in runs:
            runs[source] = load_run(source, options.overrides, seed=options.seed)
    compared = side_by_side([runs[source] for source in sources])
    if chosen is None:
        _print(compared)
    elif options.out is None:
        _write_out(compared, chosen)
    else:
        _write_file(compared, chosen, Path(options.out))
    return EXIT_OK


def _format(options: CompareOptions) -> str | None:
    """Return the format to write, from the name of the file where none is asked for; before anything is simulated."""
    if options.out is not None and not Path(options.out).parent.is_dir():
        raise ScenarioError(f"cannot write {options.out}: its folder does not exist", hint="choose another file with --out")
    if len(options.formats) > 1:
        asked = " and ".join(f"--{each}" for each in options.formats)
        raise ScenarioError(f"{asked} exclude each other", hint="ask for one of them")
    if options.formats or options.out is None:
        return options.formats[0] if options.formats else None
    suffix = Path(options.out).suffix.removeprefix(".")
    if suffix not in FORMATS:
        near = did_you_mean(suffix, FORMATS) if suffix else None
        raise ScenarioError(f"'{options.out}' does not say its format", hint=near or "name a file that ends in .md, .csv or .json")
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
