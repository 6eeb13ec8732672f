"""Read JSON that may be long, and find places in it only when something is wrong."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clustersim.documents.files import STDIN, check_size, read_bytes, read_stdin, text_of
from clustersim.documents.text import HALF, WHOLE, Data, Document, is_whole, source_place
from clustersim.errors import Place, ScenarioError

_MAX_BYTES: Final = 256 * 2**20
"""Unpacked; a million flows fit in."""
_HINT: Final = "name a JSON file"
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31
"""Value of ``wbits`` in zlib for its largest window with a gzip header around it."""
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Any escape of a surrogate; the data show whether it is unpaired."""
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def read_json(source: str) -> tuple[str, str, Data]:
    """Return the name of a JSON file, its text, and its data.

    Parameters
    ----------
    source
        A path, or ``-`` for stdin. What is packed by gzip is unpacked, whatever its name.

    Raises
    ------
    ScenarioError
        When there is no such file, or it is too large, not text, or not JSON.
    """
    name = "<stdin>" if source == STDIN else source
    raw = unpacked(name, read_stdin(_MAX_BYTES, name) if source == STDIN else read_bytes(Path(source), _MAX_BYTES, _HINT))
    text = text_of(raw, name, _HINT)
    return name, text, parse_json(text, name)


def parse_json(text: str, name: str) -> Data:
    """Return the data of a JSON text; ``name`` is the file name in messages.

    Raises
    ------
    ScenarioError
        When it is not JSON.
    """
    try:
        data: Data = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise ScenarioError(message, place=source_place(name, text.splitlines(), error.lineno, error.colno)) from error
    except RecursionError as error:
        raise ScenarioError("is nested too deep", place=Place(file=name)) from error
    except ValueError as error:
        raise ScenarioError(f"is not JSON: {error}", place=Place(file=name)) from error
    check_characters(text, name, data)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDocument(Document):
    """A JSON mapping, with places that are found in its text when something is wrong."""

    text: str = field(repr=False)

    @property
    def in_json(self) -> bool:
        """True, whatever its name."""
        return True

    def place(self, path: Sequence[str | int], *, key: bool = False) -> Place:
        """Return where the value (or its key) at a path stands, or else its nearest parent."""
        return place_in(self.text, self.name, path, key=key)


def json_text(document: object) -> str:
    """Return plain data as people and programs read it."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_characters(text: str, name: str, data: Data) -> None:
    """Refuse data of a JSON text with an unpaired surrogate escape.

    Raises
    ------
    ScenarioError
        At the first escape of a half.
    """
    # Only an escape can bring one, and a long file without any is not looked through.
    found = _HALF.search(text)
    if found is not None and not is_whole(data):
        line, column = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
        raise ScenarioError(HALF, place=source_place(name, text.splitlines(), line, column), hint=WHOLE)


def place_in(text: str, name: str, path: Sequence[str | int], *, key: bool = False) -> Place:
    r"""Return where the value at a path stands in a JSON text, or its key; the nearest parent where it is missing.

    Examples
    --------
    >>> str(place_in('{"flows": [{"bytes": 1},\n {"bytes": -1}]}', "x.json", ("flows", 1, "bytes")))
    'x.json:2:12'
    """
    at = _skip(text, 0)
    for depth, part in enumerate(path):
        found = _child(text, at, part)
        if found is None:
            break
        at = found[0] if key and depth == len(path) - 1 else found[1]
    line = text.count("\n", 0, at)
    return source_place(name, text.splitlines(), line + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _child(text: str, at: int, part: str | int) -> tuple[int, int] | None:
    """Return where the key and the value of a part of the mapping or list at ``at`` stand."""
    decoder, found = json.JSONDecoder(), None
    if text[at] != ("[" if isinstance(part, int) else "{"):
        return None
    place, number = _skip(text, at + 1), 0
    while text[place] not in "]}":
        start, name = place, str(number)
        if not isinstance(part, int):
            read, end = decoder.raw_decode(text, place)
            name, place = str(read), _skip(text, _skip(text, end) + 1)
        if name == str(part):
            # The last of several counts, as for the reader.
            found = start, place
        place = _skip(text, decoder.raw_decode(text, place)[1])
        if text[place] == ",":
            place = _skip(text, place + 1)
        number += 1
    return found


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def unpacked(name: str, raw: bytes) -> bytes:
    """Return bytes without gzip compression; others unchanged.

    Raises
    ------
    ScenarioError
        When they are torn, or too many.
    """
    if raw[:2] == _GZIP:
        unpacker = zlib.decompressobj(wbits=_GZIP_BITS)
        try:
            raw = unpacker.decompress(raw, _MAX_BYTES + 1)
        except zlib.error as error:
            raise ScenarioError("is not a gzip file, though it begins like one", place=Place(file=name)) from error
        if not unpacker.eof and len(raw) <= _MAX_BYTES:
            raise ScenarioError("is cut off: the end of the gzip file is missing", place=Place(file=name))
    check_size(raw, _MAX_BYTES, Place(file=name), "split it")
    return raw
