"""The numbers that the loops of ``ripple.py`` work on."""

from __future__ import annotations

from typing import Final, NamedTuple

from clustersim.topology.cluster import FloatArray, IntArray

TICK: Final = 0
"""Place in ``Table.counters``: number of the present look."""
N_CHANGED: Final = 1
"""How far ``Table.changed`` is filled."""


class Table(NamedTuple):
    """Kinds, cells, and the entries where a kind crosses a cell; all entries of a kind stand together.

    The entries of a cell whose kinds are in flight form two rings, of those it owns and of the others; each begins at a place
    behind all entries.
    """

    starts: IntArray
    """First entry of each kind, and one more for the end."""
    cells: IntArray
    """Cell of each entry."""
    kinds: IntArray
    """Kind of each entry."""
    units: FloatArray
    """What one flow of the kind takes of the cell at level 1."""
    limits: FloatArray
    """Highest level of each kind."""
    capacity: FloatArray
    """Of each cell."""
    loads: FloatArray
    """What all flows in flight of the kind take of the cell at level 1; 0 when none is."""
    level: FloatArray
    """Of each kind in flight."""
    owner: IntArray
    """For each kind the entry with the cell that owns it, or -1."""
    after: IntArray
    """Next entry in the ring."""
    before: IntArray
    """The one before."""
    cell_level: FloatArray
    """Infinite for a cell that is not full."""
    others: FloatArray
    """What kinds that a cell does not own take of it."""
    own: FloatArray
    """What kinds that it owns take at level 1."""
    waiting: IntArray
    """1 for a cell that waits for a look."""
    looks: IntArray
    """Looks at each cell since all was added up."""
    stamp: IntArray
    """Last look that reached the cell."""
    changed: IntArray
    """Kinds that were given a level since the change began, some of them more than once."""
    counters: IntArray
    """See ``TICK`` and ``N_CHANGED``."""
