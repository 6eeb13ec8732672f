"""Tables as CSV: numbers with all their digits, and no text that a spreadsheet would take for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Final

CsvCell = str | int | float | None

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of what spreadsheets calculate, or send away."""
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?( ?%)?", re.ASCII)


def csv_text(rows: Iterable[Iterable[CsvCell]]) -> str:
    r"""Return rows as CSV; a cell that is None stays empty.

    Examples
    --------
    >>> csv_text([("name", "time_s"), ("=1+1", 0.1), ("-3 %", None)])
    "name,time_s\n'=1+1,0.1\n-3 %,\n"
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def csv_cell(cell: CsvCell) -> str:
    """Return the text of a cell; an apostrophe before text that begins like a formula marks it as text for spreadsheets."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell
    if isinstance(cell, bool):
        return str(cell).lower()
    # float() first: the text of a numpy scalar is not a number to a CSV reader.
    return repr(float(cell)) if isinstance(cell, float) else str(cell)
