"""Plain data of a document and where each part of it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from clustersim.errors import Place

Scalar = str | int | float | bool | None
Data = Scalar | list["Data"] | dict[str, "Data"]

_LONGEST_LINE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Position of one value, and its children; lines and columns count from one."""

    line: int
    column: int
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    children: Mapping[str | int, Spot] = field(default_factory=dict[str | int, "Spot"])


def source_place(name: str, lines: Sequence[str], line: int, column: int) -> Place:
    """Return a place with its source line, unless a caret below that line would help nobody."""
    text = (lines[line - 1] if 0 < line <= len(lines) else "").replace("\t", " ")
    # Control characters would act on the terminal.
    shown = text if 0 < len(text) <= _LONGEST_LINE and text.isprintable() else None
    return Place(file=name, line=line, column=column, text=shown)
