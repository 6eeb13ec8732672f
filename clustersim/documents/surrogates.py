"""Halves of surrogate pairs in text: an escape may bring one, and no file and no terminal can hold it."""

from __future__ import annotations

from typing import Final

from clustersim.documents.spots import Data

HALF: Final = "holds half a surrogate pair, which is no character"
WHOLE: Final = "write the character itself, or both halves"


def whole_text(text: str) -> str | None:
    r"""Return text in which both halves of a pair are the character that they mean, or None where a half stands alone.

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
