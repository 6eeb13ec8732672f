"""Plain data of a document: merged mappings, text without unpaired surrogates, and the place of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

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
    """Return a place with its source line, unless a caret below that line would not help."""
    text = (lines[line - 1] if 0 < line <= len(lines) else "").replace("\t", " ")
    # Control characters would act on the terminal.
    shown = text if 0 < len(text) <= _LONGEST_LINE and text.isprintable() else None
    return Place(file=name, line=line, column=column, text=shown)


def merged(below: dict[str, Data], above: dict[str, Data]) -> dict[str, Data]:
    """Return two mappings as one, the second on top, mapping by mapping.

    Examples
    --------
    >>> merged({"cluster": {"name": "selene-a100"}, "checks": []}, {"cluster": {"nodes": 4}})
    {'cluster': {'name': 'selene-a100', 'nodes': 4}, 'checks': []}
    """
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


HALF: Final = "holds half a surrogate pair, which is no character"
WHOLE: Final = "write the character itself, or both halves"


def whole_text(text: str) -> str | None:
    r"""Return text with surrogate pairs joined, or None where one is unpaired.

    Examples
    --------
    >>> whole_text("\ud83d\ude00") == "\N{GRINNING FACE}", whole_text("\ud83d")
    (True, None)
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        return None


def is_whole(data: Data) -> bool:
    """Return whether no text in some data holds half a pair."""
    if isinstance(data, str):
        return whole_text(data) is not None
    if isinstance(data, list):
        return all(is_whole(item) for item in data)
    if isinstance(data, dict):
        return all(whole_text(key) is not None and is_whole(value) for key, value in data.items())
    return True


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Return whether a value is a mapping of whatever keys."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Return whether a value is a list or a tuple, and no text."""
    return isinstance(value, list | tuple)
