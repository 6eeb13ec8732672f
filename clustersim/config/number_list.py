"""Lists of numbers as people write them: ``[8-15]``, ``"1,3,5,7"``, ``[0, 2, 4-6]``."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeGuard

from pydantic import BeforeValidator, WithJsonSchema

from clustersim.units.fields import mistake

_PART: Final = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_MOST: Final = 1_000_000
"""Numbers in one list; a slip in a range must not fill the memory."""
_HINT: Final = "write such as [8-15] or [0, 2, 4-6]"


def numbers_of(value: object) -> tuple[int, ...]:
    """Return the numbers of a list or of text with commas, in the order in which they stand there.

    Raises
    ------
    PydanticCustomError
        When something is no number and no range, or stands there twice.

    Examples
    --------
    >>> numbers_of("1,3,5-7"), numbers_of(["8-10", 2])
    ((1, 3, 5, 6, 7), (8, 9, 10, 2))
    """
    found: dict[int, None] = {}
    for part in _parts(value):
        first, last = _range(part)
        if last - first >= _MOST or len(found) + last - first >= _MOST:
            raise mistake(f"'{part}' names more than {_MOST} numbers", _HINT)
        for number in range(first, last + 1):
            if number in found:
                raise mistake(f"{number} stands there twice", "name each number once")
            found[number] = None
    if not found:
        raise mistake("the list is empty", _HINT)
    return tuple(found)


def _parts(value: object) -> list[object]:
    if isinstance(value, str):
        return list(value.split(","))
    if _is_list(value):
        return [part for item in value for part in (item.split(",") if isinstance(item, str) else [item])]
    raise mistake("that is not a list of numbers", _HINT)


def _range(part: object) -> tuple[int, int]:
    if isinstance(part, int) and not isinstance(part, bool) and part >= 0:
        return part, part
    match = _PART.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        shown = f"'{part}'" if isinstance(part, str | int | float) else "that"
        raise mistake(f"{shown} is not a number or a range", _HINT)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise mistake(f"the range '{match[0].strip()}' ends before it begins", f"write {last}-{first}")
    return first, last


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


Numbers = Annotated[
    tuple[int, ...],
    BeforeValidator(numbers_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["1,3,5-7"]},
                {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
            ]
        }
    ),
]
"""A field that holds such a list."""
