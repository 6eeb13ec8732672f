"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in columns of equal width; one whose name begins with ``>`` is set to the right.

    Examples
    --------
    >>> print(aligned(("case", ">step"), [("base", "16.7 s"), ("wide", "9 s")]))
    case    step
    base  16.7 s
    wide     9 s
    """
    cells = [[name.removeprefix(">") for name in columns], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [">" if name.startswith(">") else "<" for name in columns]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip() for row in cells
    )
