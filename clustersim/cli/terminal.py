"""Output of the commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from clustersim.documents.files import write_text
from clustersim.documents.json_text import json_text
from clustersim.errors import ScenarioError
from clustersim.report.folded import folded, reading_width, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from clustersim.apps.plan.flags import FrameworkFiles
    from clustersim.report.text_tables import TextAnswer, TextTable

_ELSEWHERE: Final = "write it into a file with >, or to /dev/null"


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
    """Return a line folded to the width of a terminal; elsewhere as it is, unless a pipe folds too."""
    return line if out is None or out.closed or not (piped or out.isatty()) else folded(line, _width(out))


def _width(out: TextIO) -> int:
    return make_console().width if out.isatty() else reading_width()


def write_json(document: object) -> None:
    """Write one JSON document to stdout."""
    write_out(json_text(document))


def notice(text: str) -> None:
    """Write a line to stderr, and the part of a file below it as it is; if stderr is closed or full, drop them."""
    line, *shown = text.split("\n")
    try:
        _write(sys.stderr, "\n".join((_folded(line, sys.stderr), *shown)) + "\n")
    except OSError:
        _silence(sys.stderr)


def assumed_notices(lines: Sequence[str], *, verbose: bool, cautions: Sequence[str] = ()) -> None:
    """Write cautions to stderr, and what was assumed as :func:`notices`."""
    for line in cautions:
        notice(line)
    notices([f"assumed: {line}" for line in lines], verbose=verbose)


def notices(lines: Sequence[str], *, verbose: bool) -> None:
    """Write notes to stderr, several of them only if requested."""
    shown = lines if verbose or len(lines) < 2 else (f"{len(lines)} notes on prices and what is assumed: --verbose shows them",)
    for line in shown:
        notice(line)


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


def make_console() -> Console:
    """Return a rich console that writes as :func:`write_out` does, and honours ``NO_COLOR``."""
    from rich.console import Console

    return Console(file=_Out(), highlight=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, piped: bool = False) -> None:
    """Print a table on stdout; a column whose name begins with ``>`` is set to the right.

    On a terminal, names of columns and columns of text are folded to its width, the widest first, and columns that have no room yet
    follow in a table below. Figures are never cut. In a pipe or a file a table keeps its width.

    Parameters
    ----------
    piped
        Fold in a pipe or a file too, what is for people alone.
    """
    _, room = _widths(piped=piped)
    _print_lines(table_lines(columns, rows, room))


def print_tables(tables: Iterable[TextTable], *, piped: bool = False) -> None:
    """Print tables on stdout, each after an empty line and its heading, if it has one, with its sentences below; no empty one.

    Headings and sentences are folded in a pipe too.
    """
    width, room = _widths(piped=piped)
    _print_lines(line for table in tables for line in table.shown(width, room))


def print_answer(answer: TextAnswer, *, as_json: bool = False, piped: bool = False) -> None:
    """Print an answer on stdout: its document, or finding, sentences, which a pipe folds too, and tables, which it folds if requested."""
    if as_json:
        write_json(answer.to_dict())
        return
    _print_lines(answer.shown(*_widths(piped=piped)))


def _widths(*, piped: bool) -> tuple[int, int | None]:
    """Return the width of sentences, and the room of rows: none where they are not folded."""
    width = reading_width() if sys.stdout is None else _width(sys.stdout)
    return width, width if sys.stdout is not None and (piped or sys.stdout.isatty()) else None


def _print_lines(lines: Iterable[tuple[str, bool]]) -> None:
    """Write lines to stdout, those that name columns in bold where a terminal can show it."""
    for line, heads in lines:
        if heads:
            make_console().out(line, style="bold", highlight=False)
        else:
            write_out(f"{line}\n")


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
