"""Members of a group by domain and rail, and rings and chains through them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import joined
from clustersim.collectives.pattern import Flows, Grouping
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.wired import Cluster

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupLayout:
    """Groups with equal numbers of members in their domains.

    A group has as many *rails* as its smallest domain has members. Rail j joins the members at place j of each domain; data
    that leave or enter a domain by rail j do so by the adapter of that member.
    """

    members: IntArray
    """Shape (n_groups, size)."""
    sizes: IntArray
    """Members in each domain, in order."""

    @property
    def n_domains(self) -> int:
        """Domains of each group."""
        return len(self.sizes)

    @property
    def n_rails(self) -> int:
        """Rails of each group."""
        return int(self.sizes.min())

    def heads(self) -> IntArray:
        """Return the head of each rail in each domain, shape (n_groups, n_domains, n_rails)."""
        firsts = np.cumsum(self.sizes) - self.sizes
        return self.members[:, firsts[:, None] + np.arange(self.n_rails)]

    def blocks(self) -> Iterator[IntArray]:
        """Give the members of the domains, those of equal size together: shape (n_blocks, size)."""
        firsts = np.cumsum(self.sizes) - self.sizes
        for size in sorted(set(self.sizes.tolist())):
            places = firsts[self.sizes == size][:, None] + np.arange(size, dtype=np.int64)
            yield self.members[:, places].reshape(-1, size)


def layouts(group: Grouping) -> tuple[GroupLayout, ...]:
    """Return groups sorted by layout; one layout where all members lie evenly."""
    if group.per_domain:
        return (GroupLayout(members=group.members, sizes=np.full(group.n_domains, group.per_domain, dtype=np.int64)),)
    crossings, which = np.unique(np.diff(group.domains, axis=1) != 0, axis=0, return_inverse=True)
    found: list[GroupLayout] = []
    for number, crossing in enumerate(crossings):
        bounds = np.concatenate(([0], np.flatnonzero(crossing) + 1, [group.size]))
        found.append(GroupLayout(members=group.members[which.reshape(-1) == number], sizes=np.diff(bounds)))
    return tuple(found)


def most_rails(found: tuple[GroupLayout, ...]) -> int:
    """Return the rails of the groups that have most; groups with fewer carry more on each."""
    return max(layout.n_rails for layout in found)


def largest_block(found: tuple[GroupLayout, ...]) -> int:
    """Return the most members that a group has in a domain."""
    return max(int(layout.sizes.max()) for layout in found)


def closed_rings(cluster: Cluster, layout: GroupLayout) -> Flows:
    """Return rings inside one domain, as many as members: all follow the same cycles, one flow each."""
    return joined([_on_cycles(cluster, block, 0, block.shape[1]) for block in layout.blocks()])


def chains(cluster: Cluster, layout: GroupLayout) -> Flows:
    """Return a chain through the domain from the head of each rail, one flow each: its ring without the closing edge."""
    return joined([_on_cycles(cluster, block, layout.n_rails, layout.n_rails) for block in layout.blocks()])


def _on_cycles(cluster: Cluster, blocks: IntArray, n_heads: int, n_walks: int) -> Flows:
    """Return walks over the cycles of each domain; of those that start at one of the first members, none enters it."""
    parts: list[Flows] = []
    for arcs in cycle_arcs(cluster, blocks):
        counts = arcs.weights * (n_walks - (arcs.heads < n_heads))
        used = counts > 0.0
        chosen = blocks[arcs.rows]
        parts.append(
            Flows(
                sources=chosen[:, arcs.tails[used]].reshape(-1),
                destinations=chosen[:, arcs.heads[used]].reshape(-1),
                counts=np.tile(counts[used], len(chosen)),
            )
        )
    return joined(parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RingFlows:
    """All rings of concurrent groups, edge by edge.

    A group has as many rings as its smallest domain has members. Ring j visits the domains in order; it enters each, and
    leaves it, by the adapter of the member at place j, and between the two visits all members.
    """

    inside: Flows
    between: Flows
    n_rings: int
    """Rings of one group; of that with most, where groups differ. The edges of a group with fewer count for more."""


def ring_flows(cluster: Cluster, group: Grouping) -> RingFlows:
    """Return the rings of groups of two or more ranks.

    Notes
    -----
    Where a ring crosses to the next domain, it leaves and enters by the adapter of the member that it starts with, as NCCL
    does on a rail-optimised fabric: the last accelerator of the domain hands over inside the server.
    """
    found = layouts(group)
    n_rings = most_rails(found)
    inside: list[Flows] = []
    between: list[Flows] = []
    for layout in found:
        factor = n_rings / layout.n_rails
        if layout.n_domains == 1:
            inside.append(closed_rings(cluster, layout).times(factor))
        else:
            inside.append(chains(cluster, layout).times(factor))
            between.append(rings_over_domains(layout).times(factor))
    return RingFlows(inside=joined(inside), between=joined(between), n_rings=n_rings)


def rings_over_domains(layout: GroupLayout) -> Flows:
    """Return one flow on each rail from every domain to the next, and from the last to the first."""
    heads = layout.heads()
    return Flows(
        sources=heads.reshape(-1),
        destinations=np.roll(heads, -1, axis=1).reshape(-1),
        counts=np.ones(heads.size),
    )
