"""Sentences and tables as text, folded to the width at which they are read."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Final

ELSEWHERE: Final = 100
"""Columns of what is folded where there is no terminal."""
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[mu]?s|min|h|days|[kMGT]i?B|[kM]?USD)(?![\w/]))")
"""The blank between a number and its unit."""
_PIECES: Final = re.compile(r"[^\s-]*(?:-+|\s+|$)")
"""Parts of a name between blanks and hyphens."""


def reading_width() -> int:
    """Return the columns of the terminal, or those that COLUMNS says; 100 where there is neither, as in a notebook."""
    return shutil.get_terminal_size((ELSEWHERE, 0)).columns


def with_tied_units(text: str) -> str:
    """Return a text that is not folded between a number and its unit: a blank there is :data:`NO_BREAK`."""
    return _UNIT.sub(NO_BREAK, text)


def folded(line: str, width: int) -> str:
    """Return a sentence folded at words to a width, what follows further in; a unit stays with its number."""
    begin = line[: len(line) - len(line.lstrip())]
    text = textwrap.fill(
        with_tied_units(line.strip()),
        max(width - 1, 1),
        initial_indent=begin,
        subsequent_indent=f"{begin}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return text.replace(NO_BREAK, " ")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[tuple[str, bool]]:
    """Return the lines of a table, each with whether it is of the heading; a column whose name begins with ``>`` is set to the right.

    Names of columns and columns of text are folded to the width, the widest first, and columns that have no room yet follow in a table
    below. Figures are never cut.

    Examples
    --------
    >>> for line, _ in table_lines(("case", ">step"), [("base", "16.7 s"), ("a wide one", "9 s")], 14):
    ...     print(line)
    case      step
    base    16.7 s
    a wide     9 s
    one
    """
    cells = [[column.removeprefix(">"), *(row[place] for row in rows)] for place, column in enumerate(columns)]
    least = [_least_width(column, texts) for column, texts in zip(columns, cells, strict=True)]
    first, rest = [0], list(range(1, len(columns)))
    lines: list[tuple[str, bool]] = []
    while rest or not lines:
        n_shown = next((n for n in range(len(rest), 1, -1) if width is None or _fits([least[at] for at in [*first, *rest[:n]]], width)), 1)
        # A column without a name belongs to the one before it.
        while n_shown > 1 and n_shown < len(rest) and not cells[rest[n_shown]][0]:
            n_shown -= 1
        shown, rest = [*first, *rest[:n_shown]], rest[n_shown:]
        lines += [("", False)] if lines else []
        lines += _columns_lines([columns[at] for at in shown], [cells[at] for at in shown], [least[at] for at in shown], width)
    return lines


def _columns_lines(
    columns: Sequence[str], cells: Sequence[Sequence[str]], least: Sequence[int], room: int | None
) -> list[tuple[str, bool]]:
    widths = [max(map(len, texts)) for texts in cells]
    if room is not None and _fits(least, room):
        # Names are folded before rows are.
        rows = [max(few, *map(len, texts[1:])) if texts[1:] else few for few, texts in zip(least, cells, strict=True)]
        widths = _widths(widths, _widths(rows, least, room), room)
    sides = [">" if name.startswith(">") else "<" for name in columns]
    lines: list[tuple[str, bool]] = []
    for place, row in enumerate(zip(*cells, strict=True)):
        wrapped = textwrap.wrap if place else _heading
        folds = [[text] if len(text) <= width else wrapped(text, width) for text, width in zip(row, widths, strict=True)]
        n_lines = max(map(len, folds))
        # Names stand on their column, and texts begin beside their figures.
        even = [[*fold, *[""] * (n_lines - len(fold))] if place else [*[""] * (n_lines - len(fold)), *fold] for fold in folds]
        for parts in zip(*even, strict=True):
            line = "  ".join(f"{part:{side}{width}}" for part, side, width in zip(parts, sides, widths, strict=True))
            lines.append((line.rstrip(), not place))
    return lines


def _heading(name: str, width: int) -> list[str]:
    """Return a name in lines of a width, which end at blanks and hyphens.

    Examples
    --------
    >>> _heading("llama3-8b-8xh100", 10), _heading("size (B)", 8)
    (['llama3-8b-', '8xh100'], ['size (B)'])
    """
    lines = [""]
    for piece in _PIECES.findall(name):
        if len(f"{lines[-1]}{piece}".rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _least_width(column: str, texts: Sequence[str]) -> int:
    """Return the width below which words or figures would be cut."""
    pieces = [len(piece.rstrip()) for piece in _PIECES.findall(texts[0])]
    return max([*pieces, *(len(word) for text in texts[1:] for word in ([text] if column.startswith(">") else text.split()))], default=0)


def _fits(widths: Sequence[int], room: int) -> bool:
    return sum(widths) + 2 * (len(widths) - 1) <= room


def _widths(whole: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the width of each column: between the least and the whole, the smallest wants first."""
    widths, spare = [*least], room - sum(least) - 2 * (len(least) - 1)
    for place in sorted(range(len(whole)), key=lambda place: whole[place] - widths[place]):
        wider = min(spare, whole[place] - widths[place])
        widths[place], spare = widths[place] + wider, spare - wider
    return widths
