"""Layout of groups: the members in each domain, the head of each rail, and the rings over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clustersim.collectives.collective_flows import joined
from clustersim.collectives.cycles import cycle_arcs
from clustersim.collectives.pattern import Flows, Grouping
from clustersim.topology.cluster import Cluster, IntArray


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
