"""Kinds of coupled flow on cells of links: who crosses what, and who can ever meet whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clustersim.network.alike import links_alike
from clustersim.network.filling import Filling, spans
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.load import Footprint

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """Coupled flows that differ in nothing but their bytes and their start."""

    footprint: Footprint
    weight: float
    """Under progressive filling the rate grows as this times the level."""
    cap_bytes_per_s: float
    """The rate never exceeds it."""

    @property
    def limit(self) -> float:
        """The highest level."""
        return self.cap_bytes_per_s / self.weight

    @property
    def key(self) -> tuple[float, ...]:
        """What two kinds have in common when they are one, and mostly not otherwise."""
        links, flows = self.footprint.link_ids, self.footprint.flows
        ends = (int(links[0]), int(links[-1])) if len(links) else ()
        return (self.weight, self.cap_bytes_per_s, len(links), *ends, int(links.sum()), float(flows.sum()))

    def is_like(self, other: Kind) -> bool:
        """Return whether two kinds are one."""
        if self.weight != other.weight or self.cap_bytes_per_s != other.cap_bytes_per_s:
            return False
        mine, its = self.footprint, other.footprint
        return mine is its or (np.array_equal(mine.link_ids, its.link_ids) and np.array_equal(mine.flows, its.flows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wiring:
    """All kinds on cells, in compressed rows: kind v crosses ``cells[starts[v]:starts[v + 1]]``.

    A cell is a set of links that no kind tells apart: they have the same capacity, the same label, and as many flows of every kind,
    so that they are full at the same moment and one of them stands for all.
    """

    starts: IntArray
    cells: IntArray
    flows: FloatArray
    """How many flows of the kind cross each link of the cell."""
    loads: FloatArray
    """What one flow of the kind takes of each link of the cell at level 1: coefficient times weight."""
    limits: FloatArray
    """Highest level of each kind."""
    components: IntArray
    """For each kind the first of those that it is connected with, through links that others use too."""
    capacity_bytes_per_s: FloatArray
    """Of each link of a cell."""
    first_link: IntArray
    """The lowest link of each cell."""
    cell_of_link: IntArray
    """For each link of the cluster; -1 for those that no kind crosses."""

    @property
    def n_links(self) -> IntArray:
        """Number of links in each cell."""
        return np.bincount(self.cell_of_link[self.cell_of_link >= 0], minlength=len(self.first_link))

    def meets(self) -> BoolArray:
        """Return a matrix that says which kinds share a link with which."""
        n_kinds = len(self.limits)
        kinds = np.repeat(np.arange(n_kinds), np.diff(self.starts))
        by_cell = np.argsort(self.cells, kind="stable")
        bounds = np.searchsorted(self.cells[by_cell], np.arange(len(self.first_link) + 1)).tolist()
        together = np.zeros((n_kinds, n_kinds), dtype=np.bool_)
        # Cell by cell: a table of all kinds on all cells would not fit in memory where every group is a kind of its own.
        for here in {kinds[by_cell[first:last]].tobytes() for first, last in pairwise(bounds)}:
            crossing = np.frombuffer(here, dtype=kinds.dtype)
            together[crossing[:, None], crossing] = True
        return together

    def problem(self, kinds: IntArray, counts: FloatArray) -> tuple[Filling, IntArray, IntArray]:
        """Return the max-min problem of some kinds alone, with its entries and its cells as numbered here.

        Parameters
        ----------
        kinds
            Ascending and distinct.
        counts
            Flows in flight of each of them.
        """
        entries = spans(self.starts, kinds)
        lengths = self.starts[kinds + 1] - self.starts[kinds]
        cells, numbers = np.unique(self.cells[entries], return_inverse=True)
        problem = Filling(
            starts=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))),
            cells=numbers,
            loads=self.loads[entries] * np.repeat(counts, lengths),
            limits=self.limits[kinds],
            capacity_bytes_per_s=self.capacity_bytes_per_s[cells],
        )
        return problem, entries, cells


def lay_wiring(kinds: Sequence[Kind], capacity_bytes_per_s: FloatArray, labels: IntArray) -> Wiring:
    """Return the kinds on the cells of their links.

    Parameters
    ----------
    capacity_bytes_per_s
        Of every link of the cluster.
    labels
        One number for each link of the cluster; links with different labels are kept apart.
    """
    alike = links_alike([kind.footprint for kind in kinds], capacity_bytes_per_s, labels)
    cells, kind_of, flows = alike.entries.places, alike.entries.kinds, alike.entries.flows
    return Wiring(
        starts=np.searchsorted(kind_of, np.arange(len(kinds) + 1)),
        cells=cells,
        flows=flows,
        loads=flows * np.array([kind.weight for kind in kinds])[kind_of],
        limits=np.array([kind.limit for kind in kinds]),
        components=_components(cells, kind_of, len(kinds), len(alike.first_link)),
        capacity_bytes_per_s=capacity_bytes_per_s[alike.first_link].astype(np.float64),
        first_link=alike.first_link,
        cell_of_link=alike.cell_of_link,
    )


def _components(cells: IntArray, kind_of: IntArray, n_kinds: int, n_cells: int) -> IntArray:
    """Return for each kind the lowest kind that it is connected with: names spread from kinds to cells and back until none changes."""
    names = np.arange(n_kinds)
    while True:
        cell_names = np.full(n_cells, n_kinds)
        np.minimum.at(cell_names, cells, names[kind_of])
        spread = names.copy()
        np.minimum.at(spread, kind_of, cell_names[cells])
        # Whoever a kind is named after may have a lower name by now.
        spread = spread[spread]
        if (spread == names).all():
            return names
        names = spread
