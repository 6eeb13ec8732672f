"""Plain data of a document, and YAML 1.2 read into it, with the place of every key and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeGuard

from clustersim.documents.files import MB, read_bytes, text_of
from clustersim.errors import Place, ScenarioError

Scalar = str | int | float | bool | None
Data = Scalar | list["Data"] | dict[str, "Data"]

_LONGEST_LINE: Final = 200
IN_BRACES: Final = 'write a mapping in braces: {"key": ...}'


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


MOST_BYTES: Final = 2 * MB
"""Larger files are refused: no scenario comes near, and reading them would take minutes."""
_SHORT_FILE: Final = "name a YAML file, which is short text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as plain Python, and where each part of it was written."""

    name: str
    data: dict[str, Data]
    spot: Spot | None = field(default=None, repr=False)
    """None when the document never was a text."""
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def in_json(self) -> bool:
        """Whether its author writes JSON, as the name says, which YAML includes."""
        return self.name.lower().endswith(".json")

    def place(self, path: Sequence[str | int], *, key: bool = False) -> Place:
        """Return where the value (or its key) at a path stands, or else its nearest parent.

        Parameters
        ----------
        path
            Keys and list indices from the top.
        key
            True for the place of the key instead of the value.
        """
        if self.spot is None:
            return Place(file=self.name)
        spot, where = self.spot, (self.spot.line, self.spot.column)
        for depth, part in enumerate(path):
            child = spot.children.get(part)
            if child is None:
                break
            at_key = spot.keys.get(str(part)) if key and depth == len(path) - 1 else None
            spot, where = child, at_key or (child.line, child.column)
        return source_place(self.name, self.lines, *where)

    def wrote(self, path: Sequence[str | int]) -> bool:
        """Return whether the text itself has a value at a path, as opposed to one that was set later."""
        spot = self.spot
        for part in path:
            spot = spot.children.get(part) if spot else None
        return spot is not None

    def with_value(self, path: Sequence[str], value: Data) -> Document:
        """Return a copy with one value set, and the mappings on the path to it; places stay those of the file."""

        def put(data: Mapping[str, Data], depth: int) -> dict[str, Data]:
            below = data.get(path[depth])
            last = depth == len(path) - 1
            return {**data, path[depth]: value if last else put(below if isinstance(below, dict) else {}, depth + 1)}

        return replace(self, data=put(self.data, 0))

    def without(self, path: Sequence[str]) -> Document:
        """Return a copy without the value at a path, if there is one."""

        def kept(data: Data, first: str, *rest: str) -> Data:
            if not isinstance(data, dict) or first not in data:
                return data
            return {key: kept(each, *rest) if key == first else each for key, each in data.items() if rest or key != first}

        left = kept(self.data, *path)
        assert isinstance(left, dict)
        return replace(self, data=left)


def read_document(path: Path) -> Document:
    """Return a YAML file as a document."""
    return read_written(path)[0]


def read_written(path: Path) -> tuple[Document, str]:
    """Return a YAML file as a document, and as the text that it is."""
    name = str(path)
    text = text_of(read_bytes(path, MOST_BYTES, _SHORT_FILE), name, _SHORT_FILE)
    return parse_document(text, name), text


def parse_document(text: str, name: str) -> Document:
    """Return YAML text as a document; ``name`` is the file name in messages.

    Raises
    ------
    ScenarioError
        When the text is binary, empty, not YAML or not a mapping.
    """
    if "\0" in text:
        raise ScenarioError("is binary, not text", place=Place(file=name), hint="write it as a YAML file")
    if len(text) > MOST_BYTES:
        raise ScenarioError("is larger than 2 MB", place=Place(file=name), hint=_SHORT_FILE)
    # Imported here because this module is reachable from `import clustersim`, which has to stay light.
    from clustersim.documents.composing import read_yaml

    lines = tuple(text.splitlines())
    read = read_yaml(text, name, lines)
    if read is None:
        raise ScenarioError("is empty", place=Place(file=name), hint="write keys and values, such as 'name: my-run'")
    data, spot = read
    if not isinstance(data, dict):
        hint = IN_BRACES if name.lower().endswith(".json") else "write lines of 'key: value'"
        raise ScenarioError("is not a mapping", place=source_place(name, lines, spot.line, spot.column), hint=hint)
    return Document(name=name, data=data, spot=spot, lines=lines)


def plain_document(data: Mapping[str, Data], name: str) -> Document:
    """Return a document for a mapping that never was a text; its places name only ``name``."""
    return Document(name=name, data=dict(data))


def placed_texts(data: Data, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the text of every text in data."""
    if isinstance(data, str):
        yield at, data
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from placed_texts(value, f"{at}.{key}" if at else str(key))
