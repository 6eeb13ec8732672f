"""Cycles over the accelerators of a domain: over the switch in any order, in a mesh along its direct links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from clustersim.topology.cluster import Cluster, FloatArray, IntArray

Counts = tuple[tuple[int, ...], ...]
"""Direct links from each member to each other one."""

MESHES: Final = ("cube_mesh", "full_mesh", "bridge_pairs")
_MOST_MEMBERS: Final = 8
"""Maximum size of an irregular mesh that is searched; a complete one needs no search."""
_MOST_TRIES: Final = 2_000
_MOST_LANES: Final = 4
"""Maximum lanes of a link, as a multiple of the narrowest that is used: much narrower ones carry nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arcs:
    """Edges of the cycles of some domains, by the places of their ends."""

    rows: IntArray
    """Which domains."""
    tails: IntArray
    heads: IntArray
    weights: FloatArray
    """Share of the cycles that use each edge: the edges from a member, and those to it, add up to 1."""


def cycle_arcs(cluster: Cluster, blocks: IntArray) -> tuple[Arcs, ...]:
    """Return cycles through all members of each domain.

    Parameters
    ----------
    blocks
        Shape (n_domains, size): members of each domain.

    Notes
    -----
    Behind a switch, and over PCIe, there is one cycle, in the order of the ranks. In a mesh there are as many as its direct links
    allow, each link used by no more cycles than it has lanes, as communication libraries search them. A complete mesh of
    equal links is used by all of its cycles equally, which loads every link alike. Where direct links form no cycle, the one
    in the order of the ranks goes by whatever route there is.
    """
    size = blocks.shape[1]
    if size == 1:
        return ()
    meshed = np.array([node.scale_up.kind in MESHES for node, _ in cluster.kinds])[cluster.kind_of(cluster.node_of(blocks[:, 0]))]
    found = [_in_order(rows, size) for rows in (np.flatnonzero(~meshed),) if len(rows)]
    meshes = np.flatnonzero(meshed)
    if not len(meshes):
        return tuple(found)
    counts, which = np.unique(_direct_links(cluster, blocks[meshes]), axis=0, return_inverse=True)
    for number, lanes in enumerate(counts):
        rows = meshes[which.reshape(-1) == number]
        weights = _weights(tuple(tuple(int(lane) for lane in row) for row in lanes))
        if weights is None:
            found.append(_in_order(rows, size))
        else:
            tails, heads = np.nonzero(weights)
            found.append(Arcs(rows=rows, tails=tails, heads=heads, weights=weights[tails, heads]))
    return tuple(found)


def _in_order(rows: IntArray, size: int) -> Arcs:
    places = np.arange(size, dtype=np.int64)
    return Arcs(rows=rows, tails=places, heads=np.roll(places, -1), weights=np.ones(size))


def _direct_links(cluster: Cluster, blocks: IntArray) -> IntArray:
    """Return the lanes between each two members, in units of the narrowest link, shape (n_domains, size, size)."""
    n_blocks, size = blocks.shape
    tails, heads = np.nonzero(~np.eye(size, dtype=np.bool_))
    routes = cluster.routes(blocks[:, tails].reshape(-1), blocks[:, heads].reshape(-1))
    direct = np.diff(routes.starts) == 1
    bandwidth_bytes_per_s = np.zeros(len(direct))
    bandwidth_bytes_per_s[direct] = cluster.bandwidth_bytes_per_s[routes.link_ids[routes.starts[:-1][direct]]]
    table = np.zeros((n_blocks, size, size))
    table[:, tails, heads] = bandwidth_bytes_per_s.reshape(n_blocks, -1)
    both_ways = np.minimum(table, table.transpose(0, 2, 1))
    widest = both_ways.max(axis=(1, 2), keepdims=True)
    worthwhile = np.where(_MOST_LANES * both_ways >= widest, both_ways, 0.0)
    narrowest = np.where(worthwhile > 0.0, worthwhile, np.inf).min(axis=(1, 2), keepdims=True)
    # The quotient of two sums of equal links may fall short of a whole number by round-off.
    return np.floor(worthwhile / narrowest + 1e-9).astype(np.int64)


@lru_cache(maxsize=1024)
def _weights(counts: Counts) -> FloatArray | None:
    """Return the share of the cycles that use each edge; None where there is no cycle."""
    size = len(counts)
    lanes = np.array(counts, dtype=np.int64)
    others = ~np.eye(size, dtype=np.bool_)
    if lanes[others].min() == lanes[others].max() > 0:
        return others / (size - 1)
    cycles = edge_disjoint_cycles(counts)
    if not cycles:
        return None
    weights = np.zeros((size, size))
    for cycle in cycles:
        weights[cycle, np.roll(cycle, -1)] += 1.0 / len(cycles)
    return weights


def edge_disjoint_cycles(counts: Counts) -> tuple[tuple[int, ...], ...]:
    """Return directed cycles through all members that together use each direct link at most as often as it has lanes.

    As many as possible, within a bounded search: never more than the member with fewest links has. The search is exact
    cover by backtracking: what a member without spare links has left must all be used, and the link with fewest cycles
    left to choose from comes first.

    Examples
    --------
    >>> edge_disjoint_cycles(((0, 1, 1), (1, 0, 1), (1, 1, 0)))
    ((0, 1, 2), (0, 2, 1))
    """
    size = len(counts)
    if size > _MOST_MEMBERS:
        return ()
    cycles = _all_cycles(counts)
    most = min(sum(lanes) for lanes in (*counts, *zip(*counts, strict=True)))
    for target in range(most if cycles else 0, 0, -1):
        search = _Search(np.array(cycles, dtype=np.int64), np.array(counts, dtype=np.int64))
        if search.fill(target):
            return tuple(cycles[index] for index in search.chosen)
    return ()


def _all_cycles(counts: Counts) -> list[tuple[int, ...]]:
    """Return all cycles through all members along direct links, in lexicographic order."""
    size = len(counts)
    found: list[tuple[int, ...]] = []
    walks: list[tuple[int, ...]] = [(0,)]
    while walks:
        walk = walks.pop()
        if len(walk) == size:
            if counts[walk[-1]][0]:
                found.append(walk)
            continue
        walks.extend((*walk, there) for there in range(size - 1, 0, -1) if counts[walk[-1]][there] and there not in walk)
    return found


class _Search:
    """Choice of cycles by backtracking, given up after a number of tries."""

    def __init__(self, cycles: IntArray, lanes: IntArray) -> None:
        self._edges = cycles * len(lanes) + np.roll(cycles, -1, axis=1)
        self._left = lanes.copy()
        self._tries = 0
        self.chosen: list[int] = []

    def fill(self, wanted: int) -> bool:
        """Choose a number of further cycles; False where there is no choice, or the search takes too long."""
        if wanted == 0:
            return True
        self._tries += 1
        if self._tries > _MOST_TRIES:
            return False
        for index in self._candidates(wanted):
            self._take(index, 1)
            self.chosen.append(index)
            if self.fill(wanted - 1):
                return True
            self.chosen.pop()
            self._take(index, -1)
        return False

    def _take(self, index: int, times: int) -> None:
        self._left.reshape(-1)[self._edges[index]] -= times

    def _candidates(self, wanted: int) -> list[int]:
        """Return the cycles that fit, through the scarcest link that must be used, if there is one."""
        left = self._left.reshape(-1)
        fitting = np.flatnonzero((left[self._edges] > 0).all(axis=1))
        needed = np.flatnonzero((self._left > 0) & (self._left.sum(axis=1, keepdims=True) == wanted))
        if len(needed):
            ways = np.bincount(self._edges[fitting].reshape(-1), minlength=len(left))[needed]
            scarcest = needed[int(ways.argmin())]
            fitting = fitting[(self._edges[fitting] == scarcest).any(axis=1)]
        return [int(index) for index in fitting]
