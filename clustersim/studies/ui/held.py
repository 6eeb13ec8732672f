"""What a request may hold: the page sends texts, counts of clicks, scenarios and layouts, and nothing else is let in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

_TEXTS: Final = ("value", "hash", "href", "children", "className")
_ROWS: Final = "plan-rows"


def is_request(body: object) -> bool:
    """Return whether the body of a request for a change of the page has the form that the page gives it.

    Examples
    --------
    >>> is_request({"inputs": [{"id": "base", "property": "data", "value": {"model": "gpt2"}}]})
    True
    >>> is_request({"inputs": [{"id": "base", "property": "data", "value": "gpt2"}]})
    False
    """
    if not _is_mapping(body):
        return False
    return all(_is_list(parts) and all(map(_is_part, parts)) for parts in (body.get("inputs", []), body.get("state", [])))


def _is_part(part: object) -> bool:
    """Return whether an input or a state is one; those of a table of buttons come as a list."""
    if _is_list(part):
        return all(map(_is_part, part))
    return _is_mapping(part) and _is_held(part.get("id"), part.get("property"), part.get("value"))


def _is_held(name: object, kind: object, value: object) -> bool:
    if value is None:
        return True
    if kind == "n_clicks":
        return isinstance(value, int)
    if kind in _TEXTS:
        return isinstance(value, str)
    if name == _ROWS:
        return _is_list(value) and all(map(_is_mapping, value))
    return kind == "data" and _is_mapping(value)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list)
