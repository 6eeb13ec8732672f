"""Output of the commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from clustersim.documents.files import write_text
from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from clustersim.apps.plan.flags import FrameworkFiles

_WIDE: Final = 400
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_PIPED: Final = 100
"""Columns of what is folded in a pipe."""
_ELSEWHERE: Final = "write it into a file with >, or to /dev/null"
_PADDING: Final = re.compile(r"(\x1b\[1m)? +(\x1b\[0m)?\n")
"""End of the last cell of a row, where a narrow terminal would fold it into empty lines."""
_PIECES: Final = re.compile(r"[^\s-]*(?:-+|\s+|$)")
"""Parts of a name between blanks and hyphens."""


def write_out(text: str) -> None:
    """Write data to stdout; a closed reader (``| head``) is no error.

    Raises
    ------
    ScenarioError
        When stdout is closed, or full.
    """
    try:
        if not _write(sys.stdout, text):
            raise ScenarioError("stdout is closed, and there is something to write to it", hint=_ELSEWHERE)
    except OSError as error:
        silence_stdout()
        raise ScenarioError(f"cannot write to stdout: {error.strerror or error}", hint=_ELSEWHERE) from error


def write_lines(*lines: str, piped: bool = False) -> None:
    """Write lines to stdout, folded at words where that is a terminal, or always."""
    write_out("".join(f"{_folded(line, sys.stdout, piped=piped)}\n" for line in lines))


def _folded(line: str, out: TextIO | None, *, piped: bool = False) -> str:
    """Return a line folded to the width of a terminal, what follows further in; elsewhere as it is, unless a pipe folds too."""
    if out is None or out.closed or not (piped or out.isatty()):
        return line
    begin = line[: len(line) - len(line.lstrip())]
    width = _width(out) - 1
    # A percent sign stays with its number.
    kept = line.strip().replace(" %", f"{_NO_BREAK}%")
    folded = textwrap.fill(
        kept, width, initial_indent=begin, subsequent_indent=f"{begin}  ", break_long_words=False, break_on_hyphens=False
    )
    return folded.replace(_NO_BREAK, " ")


def _width(out: TextIO) -> int:
    return make_console().width if out.isatty() else _PIPED


def write_json(document: object) -> None:
    """Write one JSON document to stdout."""
    write_out(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def notice(text: str) -> None:
    """Write a line to stderr, and the part of a file below it as it is; if stderr is closed or full, drop them."""
    line, *shown = text.split("\n")
    try:
        _write(sys.stderr, "\n".join((_folded(line, sys.stderr), *shown)) + "\n")
    except OSError:
        _silence(sys.stderr)


def write_files(files: FrameworkFiles, out: str | None) -> None:
    """Write the file of a framework to a path, or alone to stdout; notes go to stderr."""
    for line in files.notes:
        notice(f"note: {line}")
    if out is None:
        write_out(files.text)
        return
    write_text(Path(out), files.text, hint="choose another file with --out")
    notice(f"wrote {out}")


def tells_a_person() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def open_standard_files() -> None:
    """Open the null device for closed stdin, stdout and stderr, or the next opened file would take their place."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def silence_stdout() -> None:
    """Write nothing more to stdout, also not at the end."""
    if sys.stdout is not None:
        _silence(sys.stdout)


def make_console(width: int | None = None) -> Console:
    """Return a rich console that writes as :func:`write_out` does, and honours ``NO_COLOR``.

    Parameters
    ----------
    width
        In characters; that of the terminal when omitted.
    """
    from rich.console import Console

    return Console(file=_Out(), highlight=False, width=width)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, piped: bool = False) -> None:
    """Print a table on stdout; a column whose name begins with ``>`` is set to the right.

    On a terminal, names of columns and columns of text are folded to its width, the widest first, and columns that have no room yet
    follow in a table below. Figures are never cut. In a pipe or a file a table keeps its width.

    Parameters
    ----------
    piped
        Fold in a pipe or a file too, what is for people alone.
    """
    folds = sys.stdout is not None and (piped or sys.stdout.isatty())
    room = _width(sys.stdout) if folds and sys.stdout is not None else None
    cells = [[column.removeprefix(">"), *(row[place] for row in rows)] for place, column in enumerate(columns)]
    least = [_least_width(column, texts) for column, texts in zip(columns, cells, strict=True)]
    first, rest = [0], list(range(1, len(columns)))
    if not rest:
        _print_columns(columns, cells, least, room)
    while rest:
        n_shown = next((n for n in range(len(rest), 1, -1) if room is None or _fits([least[at] for at in [*first, *rest[:n]]], room)), 1)
        # A column without a name belongs to the one before it.
        while n_shown > 1 and n_shown < len(rest) and not cells[rest[n_shown]][0]:
            n_shown -= 1
        shown, rest = [*first, *rest[:n_shown]], rest[n_shown:]
        _print_columns([columns[at] for at in shown], [cells[at] for at in shown], [least[at] for at in shown], room)
        if rest:
            write_out("\n")


def _print_columns(columns: Sequence[str], cells: Sequence[Sequence[str]], least: Sequence[int], room: int | None) -> None:
    from rich.table import Table
    from rich.text import Text

    widths = _widths([max(map(len, texts)) for texts in cells], least, room)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, texts, width in zip(columns, cells, widths, strict=True):
        table.add_column(Text(_heading(texts[0], width)), justify="right" if name.startswith(">") else "left", width=width)
    for row in zip(*(texts[1:] for texts in cells), strict=True):
        # Text, or rich would read [brackets] as markup.
        table.add_row(*map(Text, row))
    console = make_console(_WIDE)
    with console.capture() as printed:
        console.print(table)
    write_out(_PADDING.sub("\n", printed.get()))


def _heading(name: str, width: int) -> str:
    """Return a name in lines of a width, which end at blanks and hyphens.

    Examples
    --------
    >>> _heading("llama3-8b-8xh100", 10).splitlines(), _heading("size (B)", 8)
    (['llama3-8b-', '8xh100'], 'size (B)')
    """
    lines = [""]
    for piece in _PIECES.findall(name):
        if len(f"{lines[-1]}{piece}".rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _least_width(column: str, texts: Sequence[str]) -> int:
    """Return the width below which words or figures would be cut."""
    pieces = [len(piece.rstrip()) for piece in _PIECES.findall(texts[0])]
    return max([*pieces, *(len(word) for text in texts[1:] for word in ([text] if column.startswith(">") else text.split()))], default=0)


def _fits(widths: Sequence[int], room: int) -> bool:
    return sum(widths) + 2 * (len(widths) - 1) <= room


def _widths(whole: Sequence[int], least: Sequence[int], room: int | None) -> list[int]:
    """Return the width of each column."""
    if room is None or not _fits(least, room):
        return [*whole]
    widths, spare = [*least], room - sum(least) - 2 * (len(least) - 1)
    for place in sorted(range(len(whole)), key=lambda place: whole[place] - widths[place]):
        wider = min(spare, whole[place] - widths[place])
        widths[place], spare = widths[place] + wider, spare - wider
    return widths


class _Out(io.StringIO):
    """Stdout as a console takes it."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only, as that of all streams
        return getattr(sys.stdout, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    def fileno(self) -> int:
        return 1 if sys.stdout is None else sys.stdout.fileno()

    def write(self, text: str, /) -> int:
        write_out(text)
        return len(text)


def _write(stream: TextIO | None, text: str) -> bool:
    """Return whether there is a stream to write to."""
    if stream is None or stream.closed:
        return False
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, errors="replace").decode(encoding))
        stream.flush()
    return True


def _silence(stream: TextIO) -> None:
    """Point a stream that takes no more to nowhere, or Python would complain again when it flushes at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
