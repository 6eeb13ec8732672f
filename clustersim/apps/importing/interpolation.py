"""Values that refer to others: ``${model.hidden_size}``, ``${.key}``, ``${multiply:4,${.hidden_size}}``, ``${NAME:default}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from clustersim.apps.importing.arithmetic import arithmetic
from clustersim.apps.importing.command import scalar
from clustersim.apps.importing.entries import Entry
from clustersim.documents.text import Data

_INNERMOST: Final = re.compile(r"\$\{([^${}]*)\}")
_OPERATIONS: Final = {"multiply": "*", "mul": "*", "divide": "/", "div": "/", "floordiv": "/", "add": "+", "sum": "+", "subtract": "-"}
_ENVIRONMENT: Final = ("oc.env", "env")
_ROUNDS: Final = 20
_LONGEST: Final = 10_000


def resolved(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return entries with references resolved; references to the environment stay as written."""
    known = {entry.key: entry.value for entry in entries}
    return tuple(replace(entry, value=_resolved(entry.value, entry.key, known)) for entry in entries)


def is_open(value: Data) -> bool:
    """Return whether a value depends on a variable that no file gives."""
    return isinstance(value, str) and "$" in value


def is_output(value: Data) -> bool:
    """Return whether a value is the output of a command of the shell, as a file."""
    return any(isinstance(each, str) and each.startswith("<(") for each in (value if isinstance(value, list) else [value]))


def _resolved(value: Data, key: str, known: Mapping[str, Data]) -> Data:
    if not isinstance(value, str) or "${" not in value:
        return value
    text = value
    for _ in range(_ROUNDS):
        match = _INNERMOST.search(text)
        if match is None or len(text) > _LONGEST:
            break
        found, is_known = _reference(match[1].strip(), key, known)
        if not is_known:
            return value
        if match[0] == text and not isinstance(found, str):
            return found
        text = f"{text[: match.start()]}{found}{text[match.end() :]}"
    return value if "${" in text else scalar(text)


def _reference(text: str, key: str, known: Mapping[str, Data]) -> tuple[Data, bool]:
    """Return the value of a reference, and whether it is known."""
    head, colon, rest = text.partition(":")
    if head in _OPERATIONS and colon:
        number = arithmetic(_OPERATIONS[head].join(f"({part.strip()})" for part in rest.split(",")))
        return number, number is not None
    if head in _ENVIRONMENT:
        _, comma, default = rest.partition(",")
        return scalar(default.strip()), bool(comma)
    if colon:
        return scalar(rest.lstrip("-")), True
    path = text
    if text.startswith("."):
        parents = key.split(".")
        up = len(text) - len(text.lstrip("."))
        path = ".".join([*parents[:-up], text.lstrip(".")]) if up < len(parents) else text.lstrip(".")
    # The group that a file stands for, such as "training", is the first part of absolute references to it.
    for candidate in (path, path.partition(".")[2]):
        if candidate in known:
            return known[candidate], True
    return None, False
