"""What the commands write: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_WIDE: Final = 400
_PADDING: Final = re.compile(r"(\x1b\[1m)? +(\x1b\[0m)?\n")
"""Behind the last cell of a row, where a narrow terminal would fold it into empty lines."""


def write_out(text: str) -> None:
    """Write data to stdout; a reader that has gone away (``| head``) is no error."""
    _write(sys.stdout, text)


def write_json(document: object) -> None:
    """Write one JSON document to stdout."""
    write_out(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def notice(text: str) -> None:
    """Write a line for the person at the terminal to stderr."""
    _write(sys.stderr, text + "\n")


def make_console(width: int | None = None) -> Console:
    """Return a rich console on stdout that honours ``NO_COLOR`` and survives a closed pipe.

    Parameters
    ----------
    width
        In characters; that of the terminal when omitted.
    """
    from rich.console import Console

    class PatientConsole(Console):
        """A console that goes on silently when nobody reads it any more; rich itself would end the process."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            _silence(sys.stdout)

    return PatientConsole(file=sys.stdout, highlight=False, width=width)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout; a column whose name begins with ``>`` is set to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    for row in rows:
        # Text, or rich would read [brackets] as markup.
        table.add_row(*(Text(cell) for cell in row))
    # Never folded: a row of a pipe must stay one line, and a terminal that is too narrow folds by itself.
    console = make_console(_WIDE)
    with console.capture() as printed:
        console.print(table)
    write_out(_PADDING.sub("\n", printed.get()))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, errors="replace").decode(encoding))
        stream.flush()


def _silence(stream: TextIO) -> None:
    """Point a stream whose reader has gone to nowhere, or Python would complain again when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
