"""Progressive filling on compressed rows: the max-min fair levels of everything in flight, from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray

TIE: Final = 1e-12
"""Cells whose levels differ by less than this share are full at the same moment; to the last bit they are so only by luck."""

WORN: Final = 1e-3
"""What the growing kinds take of a cell is added up anew once it is less than this share of what all took."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filling:
    """A max-min problem. Kind v crosses ``cells[starts[v]:starts[v + 1]]``, each of them once.

    The level of a kind is its rate divided by its weight.
    """

    starts: IntArray
    cells: IntArray
    loads: FloatArray
    """What all flows of the kind together take of the cell at level 1: their number, times coefficient, times weight."""
    limits: FloatArray
    """Highest level of each kind: cap divided by weight; infinite without a cap."""
    capacity_bytes_per_s: FloatArray
    """For each cell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filled:
    """The max-min fair solution."""

    levels: FloatArray
    """For each kind; infinite where nothing limits it."""
    owners: IntArray
    """For each kind the entry of ``Filling.cells`` with the full cell that holds it back; -1 at its limit."""
    cell_levels: FloatArray
    """Level at which each cell filled; infinite for those that are not full."""


def progressive_filling(problem: Filling) -> Filled:
    """Return the max-min fair levels under capacities, weights and caps.

    All levels grow together from zero. A kind that reaches its limit stays there; a cell is full when ``sum over v of
    loads[l, v] * level[v]`` reaches its capacity, and then everything that crosses it stays where it is. The rest grow on.

    References
    ----------
    .. [1] D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2.

    Examples
    --------
    The first kind crosses both cells, the others one each; the second cell holds the first and the third back.

    >>> problem = Filling(
    ...     starts=np.array([0, 2, 3, 4]), cells=np.array([0, 1, 0, 1]), loads=np.ones(4), limits=np.full(3, np.inf),
    ...     capacity_bytes_per_s=np.array([10.0, 4.0]),
    ... )
    >>> progressive_filling(problem).levels.tolist()
    [2.0, 8.0, 2.0]
    """
    starts, cells, loads = problem.starts, problem.cells, problem.loads
    n_kinds, n_cells = len(starts) - 1, len(problem.capacity_bytes_per_s)
    kind_of = np.repeat(np.arange(n_kinds), np.diff(starts))
    by_cell = np.argsort(cells, kind="stable")
    n_growing = np.bincount(cells, minlength=n_cells)
    cell_starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(n_growing)))
    levels, owners, cell_levels = problem.limits.copy(), np.full(n_kinds, -1), np.full(n_cells, np.inf)
    left, demand = problem.capacity_bytes_per_s.copy(), np.bincount(cells, weights=loads, minlength=n_cells)
    whole = demand.copy()
    growing = np.diff(starts) > 0
    limited = np.flatnonzero(np.isfinite(problem.limits) & growing)
    limited = limited[np.argsort(problem.limits[limited], kind="stable")]
    while growing.any():
        fill = np.divide(np.maximum(left, 0.0), demand, out=np.full(n_cells, np.inf), where=n_growing > 0)
        level = float(fill.min())
        n_limited = int((problem.limits[limited] <= level).sum())
        if n_limited:
            # To stop somewhere below the level at which a cell fills only makes cells fill later, so all of these get there.
            stopped, limited = limited[:n_limited], limited[n_limited:]
            stopped = stopped[growing[stopped]]
        else:
            full = np.flatnonzero(fill <= level * (1.0 + TIE))
            entries = by_cell[spans(cell_starts, full)]
            entries = entries[growing[kind_of[entries]]]
            stopped, first = np.unique(kind_of[entries], return_index=True)
            levels[stopped], owners[stopped], cell_levels[full] = level, entries[first], level
        growing[stopped] = False
        entries = spans(starts, stopped)
        reached, taken = cells[entries], loads[entries]
        # Loads are added before they are multiplied. Whole numbers of flows then have the same sums in whatever order kinds come, and as
        # however many kinds: what is folded is filled to the same bit as what is not.
        here = np.unique(levels[stopped]).tolist() if n_limited else [level]
        for each in here:
            at_it = taken if len(here) == 1 else taken * (levels[kind_of[entries]] == each)
            left -= each * np.bincount(reached, weights=at_it, minlength=n_cells)
        np.subtract.at(demand, reached, taken)
        np.subtract.at(n_growing, reached, 1)
        worn = np.flatnonzero((demand < WORN * whole) & (n_growing > 0))
        if len(worn):
            # What is left of such a sum is mostly round-off.
            entries = by_cell[spans(cell_starts, worn)]
            grows = growing[kind_of[entries]]
            demand[worn] = np.bincount(cells[entries], weights=np.where(grows, loads[entries], 0.0), minlength=n_cells)[worn]
    return Filled(levels=levels, owners=owners, cell_levels=cell_levels)


def spans(starts: IntArray, rows: IntArray) -> IntArray:
    """Return the entries of some rows of a compressed table, row by row.

    Examples
    --------
    >>> spans(np.array([0, 2, 2, 5]), np.array([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    lengths = starts[rows + 1] - starts[rows]
    before: IntArray = np.repeat(starts[rows] - np.cumsum(lengths) + lengths, lengths)
    return before + np.arange(len(before))
