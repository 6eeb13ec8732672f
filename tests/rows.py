"""Arrays of ranks as tests write and read them."""

from __future__ import annotations

from clustersim.topology.cluster import IntArray


def rows(members: IntArray) -> tuple[tuple[int, ...], ...]:
    """Return the rows of a table, to compare and to collect in sets."""
    return tuple(map(tuple, members.tolist()))
