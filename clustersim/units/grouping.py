"""Values by a key that several of them share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in the order in which they come.

    Examples
    --------
    >>> grouped((len(word), word) for word in ("tp", "dp", "rank"))
    {2: ['tp', 'dp'], 4: ['rank']}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
