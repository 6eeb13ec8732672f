"""``clustersim study``."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Final

from clustersim.apps.study.question_file import question_titles
from clustersim.apps.study.reported import Reported
from clustersim.apps.study.shipped import run_study, write_study
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.errors import EXIT_OK

SCHEMA_VERSION: Final = 1
FOLDER: Final = Path("runs") / "studies"
"""Default folder of results, each study in a folder of its own."""
_WIDEST: Final = 120
"""Characters of a line of prose, however wide the terminal."""


def study_command(name: str | None, *, out: str | None, as_json: bool) -> int:
    """List the shipped studies, or run one, print what it found, keep tables and pictures, and return the exit code."""
    if name is None:
        _list(as_json=as_json)
        return EXIT_OK
    study = run_study(name)
    folder = FOLDER / study.name if out is None else Path(out)
    write_study(study, folder)
    if as_json:
        write_json(_document(study))
    else:
        _print(study)
    notice(f"wrote {folder}")
    return EXIT_OK


def _list(*, as_json: bool) -> None:
    titles = question_titles()
    if as_json:
        write_json([{"name": name, "title": title} for name, title in titles.items()])
    else:
        print_table(("name", "about"), list(titles.items()))


def _document(study: Reported) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": study.name,
        "title": study.title,
        "findings": [section.finding for section in study.sections],
        "notes": list(study.notes),
        **{table.name.replace("-", "_"): table.records() for table in study.tables},
    }


def _print(study: Reported) -> None:
    write_out(f"{study.title}\n")
    for section in study.sections:
        write_out(f"\n{_folded(section.finding)}\n\n")
        print_table(section.columns, section.cells)
    for note in study.notes:
        write_out(f"\n{_folded(note)}\n")


def _folded(text: str) -> str:
    width = max(min(shutil.get_terminal_size().columns, _WIDEST), 40)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
