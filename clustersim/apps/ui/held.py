"""Allowed contents of a request: the page sends texts, counts of clicks, scenarios and layouts, and nothing else is let in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

_TEXTS: Final = ("value", "hash", "href", "children", "className")
_ROWS: Final = "plan-rows"


def is_request(body: object, known: Mapping[str, Mapping[str, object]]) -> bool:
    """Return whether the body of a request for a change of the page has the form that the page gives it.

    Parameters
    ----------
    known
        By its outputs, each change that the page can ask for: ``inputs`` and ``state``, in their order.

    Examples
    --------
    >>> base = {"id": "base", "property": "data"}
    >>> known = {"link.href": {"inputs": [base], "state": []}}
    >>> body = {
    ...     "output": "link.href",
    ...     "outputs": {"id": "link", "property": "href"},
    ...     "inputs": [{**base, "value": {"model": "gpt2"}}],
    ...     "changedPropIds": ["base.data"],
    ... }
    >>> is_request(body, known), is_request({**body, "inputs": []}, known)
    (True, False)
    """
    if not _is_mapping(body):
        return False
    output, inputs, state = body.get("output"), body.get("inputs"), body.get("state", [])
    asked = known.get(output) if isinstance(output, str) else None
    if asked is None or not isinstance(output, str) or not _is_list(inputs) or not _is_list(state):
        return False
    if body.get("outputs") != _outputs(output) or not _are_parts(inputs, asked["inputs"]) or not _are_parts(state, asked["state"]):
        return False
    changed, names = body.get("changedPropIds", []), list(_names(inputs))
    return _is_list(changed) and all(each in names for each in changed)


def _outputs(text: str) -> object:
    """Return the outputs of a change as a request names them."""
    several = [dict(zip(("id", "property"), each.rsplit(".", 1), strict=True)) for each in text.strip(".").split("...")]
    return several if text.startswith("..") else several[0]


def _are_parts(parts: Sequence[object], known: object) -> bool:
    """Return whether inputs or states are those that were asked for; those of a table of buttons come as a list."""
    if not _is_list(known) or len(parts) != len(known):
        return False
    return all(_is_part(part, each) for part, each in zip(parts, known, strict=True))


def _is_part(part: object, known: object) -> bool:
    if not _is_mapping(known):
        return False
    if _is_list(part):
        pattern = known["id"]
        return isinstance(pattern, str) and pattern.startswith("{") and all(_is_button(each, json.loads(pattern)) for each in part)
    return _is_mapping(part) and part.get("id") == known["id"] and _is_kind(part, known["property"])


def _is_button(part: object, pattern: Mapping[str, object]) -> bool:
    """Return whether a part is a button of a table, which is named by its row."""
    if not _is_mapping(part):
        return False
    name = part.get("id")
    if not _is_mapping(name) or name.keys() != pattern.keys():
        return False
    return name["type"] == pattern["type"] and isinstance(name["index"], int) and _is_kind(part, "n_clicks")


def _is_kind(part: Mapping[str, object], kind: object) -> bool:
    return part.get("property") == kind and _is_held(part["id"], kind, part.get("value"))


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


def _names(inputs: Sequence[object]) -> Iterator[str]:
    """Yield how the page calls each input when it has changed."""
    for part in inputs:
        if _is_list(part):
            yield from _names(part)
        elif _is_mapping(part):
            name = part["id"]
            yield f"{name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(',', ':'))}.{part['property']}"


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list)
