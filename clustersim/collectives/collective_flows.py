"""Flows between ranks, as they become waves on the links of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.collectives.pattern import Flows, Grouping, Pattern, Wave, amounts
from clustersim.topology.cluster import Cluster, FloatArray, IntArray, Routes
from clustersim.topology.link_demand import Crossings, Footprint, chained, summed

BATCH: Final = 1 << 15
"""Pairs that are routed at once. The tables of many more leave the processor's cache, and those of all pairs may not fit in memory."""

NOTHING: Final = Pattern(phases=(), uniform=True)
"""Pattern of a group of one rank."""


NO_FLOWS: Final = Flows(sources=np.zeros(0, dtype=np.int64), destinations=np.zeros(0, dtype=np.int64), counts=np.zeros(0))


def joined(parts: Sequence[Flows]) -> Flows:
    """Return all flows of all parts."""
    if not parts:
        return NO_FLOWS
    return Flows(
        sources=np.concatenate([part.sources for part in parts]),
        destinations=np.concatenate([part.destinations for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def crossings(routes: Routes, ranks: IntArray, counts: FloatArray) -> Crossings:
    """Return so many flows on each of some routes, which begin or end at these ranks."""
    return Crossings(
        ranks=ranks,
        starts=routes.starts,
        link_ids=routes.link_ids,
        amounts=amounts(routes, counts),
        latency_s=routes.latency_s,
    )


def gathered(parts: Sequence[Crossings]) -> Footprint:
    """Return what all flows together put on each link."""
    some = [part for part in parts if len(part.link_ids)]
    if len(some) == 1:
        return summed(some[0].link_ids, some[0].amounts)
    # Added up in one go, so that sums do not depend on where batches end.
    return summed(np.concatenate([part.link_ids for part in parts]), np.concatenate([part.amounts for part in parts]))


def on_links(link_ids: IntArray, flows: float) -> Footprint:
    """Return so many flows on each of the links; a link that is listed twice carries twice as many."""
    found, times = np.unique(link_ids, return_counts=True)
    return Footprint(link_ids=found, flows=times.astype(np.float64) * flows)


def wave(
    cluster: Cluster, *, inside: Flows, between: Flows, share: float, steps: tuple[int, int], beside: Sequence[Crossings] = ()
) -> Wave:
    """Return a wave of flows inside domains and between them.

    Parameters
    ----------
    share
        What a flow with coefficient 1 moves, for each byte of the tensor.
    steps
        Inside a domain and between domains, on the longest way.
    beside
        What else the links carry in step with the flows.
    """
    parts = [routed(cluster, flows) for flows in (inside, between)]
    latencies_s = [float(part.latency_s.max(initial=0.0)) for part in parts]
    return Wave(
        footprint=gathered([*beside, *parts]),
        share=share,
        intra_steps=steps[0],
        inter_steps=steps[1],
        intra_latency_s=latencies_s[0],
        inter_latency_s=latencies_s[1],
        crossings=(*beside, *parts),
        flows=() if beside else (inside, between),
    )


def routed(cluster: Cluster, flows: Flows) -> Crossings:
    """Return flows on their routes."""
    parts: list[Crossings] = []
    for first in range(0, len(flows.counts), BATCH):
        some = slice(first, first + BATCH)
        routes = cluster.routes(flows.sources[some], flows.destinations[some])
        parts.append(crossings(routes, flows.sources[some], flows.counts[some]))
    return chained(parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupExchange:
    """One step, the same in every group: who sends to whom, by their places in the group, and how many parts of the tensor."""

    sources: IntArray
    destinations: IntArray
    n_parts: float


def exchanged(cluster: Cluster, group: Grouping, exchanges: Sequence[GroupExchange], share: float) -> Wave:
    """Return the wave of one or more exchanges, a step each; one that leaves a domain anywhere is a step between domains.

    Parameters
    ----------
    share
        One part, for each byte of the tensor.
    """
    inside: list[Flows] = []
    between: list[Flows] = []
    steps = [0, 0]
    for exchange in exchanges:
        leaves = (group.domains[:, exchange.sources] != group.domains[:, exchange.destinations]).reshape(-1)
        sources = group.members[:, exchange.sources].reshape(-1)
        flows = Flows(
            sources=sources,
            destinations=group.members[:, exchange.destinations].reshape(-1),
            counts=np.full(len(sources), float(exchange.n_parts)),
        )
        inside.append(flows.where(np.flatnonzero(~leaves)))
        between.append(flows.where(np.flatnonzero(leaves)))
        steps[int(leaves.any())] += 1
    return wave(cluster, inside=joined(inside), between=joined(between), share=share, steps=(steps[0], steps[1]))
