"""Broadcast and reduce: everything from one rank to all, or from all to one. The root is the first member of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.collectives.collective_flows import flow_set, joined
from clustersim.collectives.group_layout import GroupLayout, chains, closed_rings, largest_block, layouts, most_rails, ring_flows
from clustersim.collectives.pattern import Algorithm, Flows, Grouping, Pattern
from clustersim.collectives.tree import depth, two_trees
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster

RootedOp = Literal["broadcast", "reduce"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spread:
    """The flows of a broadcast; a reduction uses the same edges in reverse."""

    inside: Flows
    between: Flows
    share: float
    intra_steps: int
    inter_steps: int
    relays: int = 0
    channels: int = 1


def lay_rooted(spread: Callable[[Cluster, Grouping], _Spread], op: RootedOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return a broadcast or a reduction along chains or trees, with pipelined chunks."""
    found = spread(cluster, group)
    forward = op == "broadcast"
    rooted = flow_set(
        cluster,
        inside=found.inside if forward else found.inside.back(),
        between=found.between if forward else found.between.back(),
        share=found.share,
        steps=(found.intra_steps, found.inter_steps),
    )
    return Pattern(phases=((replace(rooted, relays=found.relays, channels=found.channels),),), uniform=group.per_domain > 0)


def _along_rings(cluster: Cluster, group: Grouping) -> _Spread:
    """Return each ring without what enters the root: every other rank receives the tensor once, ``S / n_rings`` on each ring.

    A ring that starts at another member than the root comes back into the root's domain, one step between domains more. The library finds
    a channel for each ring with an adapter of its own, and duplicates it [1]_.

    References
    ----------
    .. [1] NVIDIA, *NCCL*, ``src/graph/connect.cc``.
    """
    flows = ring_flows(cluster, group)
    roots = group.members[:, 0]
    between = group.n_domains - 1
    if group.n_domains > 1 and flows.n_rings > 1:
        between = min(group.n_domains, group.size - 1)
    return _Spread(
        inside=_without_entries(flows.inside, roots),
        between=_without_entries(flows.between, roots),
        share=1.0 / flows.n_rings,
        intra_steps=group.size - 1 - between,
        inter_steps=between,
        relays=between,
        channels=2 * min(flows.n_rings, *(node.n_nics * node.scale_up.nodes_per_domain for node, _ in cluster.kinds)),
    )


def _along_trees(cluster: Cluster, group: Grouping) -> _Spread:
    """Return two trees over the other domains for each rail, half of the rail's share on each, and chains inside the domains.

    No domain has children in both trees, so that none sends more than it receives; the root sends half to each tree's top [1]_.

    References
    ----------
    .. [1] P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
       *Parallel Computing* 35(12), 2009.
    """
    found = layouts(group)
    n_rails = most_rails(found)
    inside: list[Flows] = []
    between: list[Flows] = []
    for layout in found:
        factor = n_rails / layout.n_rails
        inside.append(_chains_from_root(cluster, layout).times(2 * factor))
        if layout.n_domains > 1:
            between.append(_trees_from_root(layout).times(factor))
    return _Spread(
        inside=joined(inside),
        between=joined(between),
        share=1.0 / (2 * n_rails),
        intra_steps=largest_block(found) - 1,
        inter_steps=1 + depth(group.n_domains - 1) if group.n_domains > 1 else 0,
    )


def _chains_from_root(cluster: Cluster, layout: GroupLayout) -> Flows:
    """Return a chain for each rail through each domain, from the head of the rail; in the first domain from the root."""
    at_root = layout.members[:, : int(layout.sizes[0])]
    roots_domain = closed_rings(cluster, GroupLayout(members=at_root, sizes=layout.sizes[:1])).times(layout.n_rails / int(layout.sizes[0]))
    others = chains(cluster, layout)
    elsewhere = others.where(np.flatnonzero(~np.isin(others.sources, at_root)))
    return joined([_without_entries(roots_domain, layout.members[:, 0]), elsewhere])


def _trees_from_root(layout: GroupLayout) -> Flows:
    heads = layout.heads()
    parts: list[Flows] = []
    for parents in two_trees(layout.n_domains - 1):
        # The trees count the domains after the root's, so that their missing parent, -1, is the root's domain.
        sources = heads[:, parents + 1].reshape(-1)
        parts.append(Flows(sources=sources, destinations=heads[:, 1:].reshape(-1), counts=np.ones(len(sources))))
    return joined(parts)


def _without_entries(flows: Flows, roots: IntArray) -> Flows:
    return flows.where(np.flatnonzero(~np.isin(flows.destinations, roots)))


def _row(op: RootedOp) -> Mapping[str, Algorithm]:
    ring = Algorithm(name="ring", lay=partial(lay_rooted, _along_rings, op))
    tree = Algorithm(name="tree", lay=partial(lay_rooted, _along_trees, op))
    return MappingProxyType({"ring": ring, "tree": tree})


ROOTED: Final[Mapping[RootedOp, Mapping[str, Algorithm]]] = MappingProxyType({op: _row(op) for op in ("broadcast", "reduce")})
"""Chains and trees, for each operation that has a root."""
