"""Frozen objects to plain data, and plain data to YAML text whose bytes do not depend on a library's release."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Final

from clustersim.documents.text import Data, is_mapping, is_sequence


def plain(value: object) -> Data:
    """Return a dataclass, mapping or sequence as dictionaries, lists and scalars.

    Raises
    ------
    TypeError
        For anything else.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if is_mapping(value):
        return {str(key): plain(item) for key, item in value.items()}
    if is_sequence(value):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")
_NUMBER_LIKE: Final = re.compile(r"[0-9][0-9_.eE+-]*|0[xob].*", re.IGNORECASE)
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def yaml_text(data: Mapping[str, Data]) -> str:
    """Return a mapping as block-style YAML; lists of scalars stand on one line.

    Examples
    --------
    >>> print(yaml_text({"cluster": {"node": "dgx-h100", "nodes": 64}, "placement": ["tp", "dp"], "bucket": "25 MB"}), end="")
    cluster:
      node: dgx-h100
      nodes: 64
    placement: [tp, dp]
    bucket: 25 MB
    """
    return "".join(f"{line}\n" for line in _mapping(data, ""))


def _mapping(data: Mapping[str, Data], indent: str) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{indent}{_text(key)}:", value, indent + "  ")


def _entry(head: str, value: Data, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield head
        yield from _mapping(value, indent)
    elif isinstance(value, list) and any(isinstance(item, dict | list) and item for item in value):
        yield head
        for item in value:
            yield from _item(item, indent)
    else:
        yield f"{head} {flat_text(value)}"


def _item(item: Data, indent: str) -> Iterator[str]:
    if not isinstance(item, dict) or not item:
        yield from _entry(f"{indent}-", item, indent + "  ")
        return
    for number, line in enumerate(_mapping(item, indent + "  ")):
        yield f"{indent}- {line.lstrip(' ')}" if number == 0 else line


def flat_text(value: Data | tuple[str, ...]) -> str:
    """Return a value on one line, as ``--set`` takes it too.

    Examples
    --------
    >>> flat_text(["tp", 1, "25 MB"])
    '[tp, 1, 25 MB]'
    """
    match value:
        case dict():
            return "{}"
        case list() | tuple():
            return "[" + ", ".join(flat_text(item) for item in value) + "]"
        case str():
            return _text(value)
        case _:
            return json.dumps(value)


def _text(text: str) -> str:
    bare = _PLAIN.fullmatch(text) and not _NUMBER_LIKE.fullmatch(text) and text.lower() not in _WORDS
    return text if bare else '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # Line separators, control characters and lone surrogates may not stand in YAML as they are.
    return character if character.isprintable() else f"\\U{ord(character):08x}"
