"""Rings over the members of a group, as a communication library lays them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.collectives.collective_flows import joined
from clustersim.collectives.group_layout import GroupLayout, chains, closed_rings, layouts, most_rails
from clustersim.collectives.pattern import Flows, Grouping
from clustersim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RingFlows:
    """All rings of all groups of an orbit, edge by edge.

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
