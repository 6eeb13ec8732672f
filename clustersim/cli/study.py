"""``clustersim study``."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.apps.study.claims import StudyAnswer, answered_question, question_titles, read_question
from clustersim.apps.study.claims_report import data_tables, notes, runs_table, write_study
from clustersim.cli.options import JsonOption
from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.errors import EXIT_OK

SCHEMA_VERSION: Final = 1
FOLDER: Final = Path("runs") / "studies"
"""Default folder of results, with one folder per study."""
_WIDEST: Final = 120
"""Characters of a line of prose, however wide the terminal."""


def study_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A shipped study, or a path; a list of them if left out.")] = None,
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for tables and plots; default runs/studies/NAME.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run many cases to answer one question, with tables and plots."""
    if name is None:
        _list(as_json=json)
        return EXIT_OK
    answer = answered_question(read_question(name))
    folder = FOLDER / answer.question.name if out is None else Path(out)
    write_study(answer, folder)
    if json:
        write_json(_document(answer))
    else:
        _print(answer)
    notice(f"wrote {folder}")
    return EXIT_OK


def _list(*, as_json: bool) -> None:
    titles = question_titles()
    if as_json:
        write_json([{"name": name, "title": title} for name, title in titles.items()])
    else:
        print_table(("name", "about"), list(titles.items()))


def _document(answer: StudyAnswer) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": answer.question.name,
        "title": answer.question.title,
        "findings": [answer.answer],
        "notes": list(notes(answer)),
        **{table.name: table.records() for table in data_tables(answer)},
    }


def _print(answer: StudyAnswer) -> None:
    table = runs_table(answer)
    write_out(f"{answer.question.title}\n\n{_folded(answer.answer)}\n\n")
    print_table(table.columns, table.rows)
    for note in notes(answer):
        write_out(f"\n{_folded(note)}\n")


def _folded(text: str) -> str:
    width = max(min(shutil.get_terminal_size().columns, _WIDEST), 40)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
