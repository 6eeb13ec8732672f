"""Flows between ranks as coupled flows on the links of a cluster: in lock-step, or independent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.collectives.pattern import Flows, FlowSet, Grouping, amounts, route_set
from clustersim.topology.cluster import FloatArray, IntArray, Routes
from clustersim.topology.link_demand import Crossings, RouteSet, Sum, chained, summed
from clustersim.topology.wired import Cluster

BATCH: Final = 1 << 15
"""Pairs routed in one batch. Larger tables leave the processor's cache, and a table of all pairs may not fit in memory."""


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
    """Return a number of flows on each of some routes, which begin or end at these ranks."""
    return Crossings(
        ranks=ranks,
        starts=routes.starts,
        link_ids=routes.link_ids,
        amounts=amounts(routes, counts),
        latency_s=routes.latency_s,
    )


def beside_each(ranks: IntArray, link_ids: IntArray, amount: float = 1.0) -> Crossings:
    """Return one flow of each rank on one link, such as that of the memory or the drives of its host.

    What a byte that an accelerator or a drive moves costs the memory is one byte: it is read or written once, without the processors.
    """
    return Crossings(
        ranks=ranks,
        starts=np.arange(len(ranks) + 1, dtype=np.int64),
        link_ids=link_ids,
        amounts=np.full(len(ranks), amount),
        latency_s=np.zeros(len(ranks)),
    )


def gathered(parts: Sequence[Crossings]) -> RouteSet:
    """Return what all flows together put on each link."""
    some = [part for part in parts if len(part.link_ids)]
    if len(some) == 1:
        return summed(some[0].link_ids, some[0].amounts)
    # Added up in one go, so that sums do not depend on where batches end.
    return summed(np.concatenate([part.link_ids for part in parts]), np.concatenate([part.amounts for part in parts]))


def on_links(link_ids: IntArray, flows: float) -> RouteSet:
    """Return a number of flows on each of the links; a link listed twice carries twice as many."""
    found, times = np.unique(link_ids, return_counts=True)
    return RouteSet(link_ids=found, flows=times.astype(np.float64) * flows)


def flow_set(
    cluster: Cluster, *, inside: Flows, between: Flows, share: float, steps: tuple[int, int], beside: Sequence[Crossings] = ()
) -> FlowSet:
    """Return one coupled flow of flows inside domains and between them.

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
    return FlowSet(
        route_set=gathered([*beside, *parts]),
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


def exchanged(cluster: Cluster, group: Grouping, exchanges: Sequence[GroupExchange], share: float) -> FlowSet:
    """Return the coupled flow of one or more exchanges, a step each; an exchange that leaves a domain anywhere is a step between domains.

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
    return flow_set(cluster, inside=joined(inside), between=joined(between), share=share, steps=(steps[0], steps[1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Flows from each source to the destination at the same place."""

    sources: IntArray
    destinations: IntArray
    leaves: NDArray[np.bool_]
    """Which of them leave their domain."""
    counts: FloatArray | None = None
    """Coefficient of each; 1 when left out."""
    beside: IntArray | None = None
    """For each flow a link that is on no route and carries something for it all the same, such as a host's memory."""
    beside_weight: float = 0.0
    """Bytes on the ``beside`` link for each byte of the flow."""
    ranks: IntArray | None = None
    """Rank of each flow, where its source is a host; the source when left out."""


def separate_flow_sets(cluster: Cluster, batches: Iterable[Batch], share: float, *, itemised: bool = False) -> tuple[FlowSet, ...]:
    """Return the coupled flow inside domains and the one between them, one step each; one without flows is left out.

    Parameters
    ----------
    share
        What a flow with coefficient 1 moves, for each byte of the tensor.
    itemised
        Whether to keep the flows one by one.
    """
    loads = (Sum(), Sum())
    latencies_s = [0.0, 0.0]
    items: tuple[list[Crossings], list[Crossings]] = ([], [])
    for batch in batches:
        for between in (0, 1):
            chosen = batch.leaves == bool(between)
            routes = cluster.routes(batch.sources[chosen], batch.destinations[chosen])
            loads[between].add(route_set(routes, None if batch.counts is None else batch.counts[chosen]))
            latencies_s[between] = max(latencies_s[between], float(routes.latency_s.max(initial=0.0)))
            if itemised:
                counts = np.ones(len(routes.latency_s)) if batch.counts is None else batch.counts[chosen]
                ranks = (batch.sources if batch.ranks is None else batch.ranks)[chosen]
                items[between].append(crossings(routes, ranks, counts))
                if batch.beside is not None:
                    items[between].append(beside_each(ranks, batch.beside[chosen], batch.beside_weight))
            if batch.beside is not None:
                loads[between].add(on_links(batch.beside[chosen], batch.beside_weight))
    flow_sets: list[FlowSet] = []
    for between in (0, 1):
        load = loads[between].route_set()
        if len(load.link_ids):
            flow_sets.append(
                FlowSet(
                    route_set=load,
                    share=share,
                    intra_steps=1 - between,
                    inter_steps=between,
                    intra_latency_s=latencies_s[0] * (1 - between),
                    inter_latency_s=latencies_s[1] * between,
                    crossings=(chained(items[between]),) if items[between] else (),
                )
            )
    return tuple(flow_sets)


def between_members(group: Grouping, sources: IntArray, destinations: IntArray) -> Iterator[Batch]:
    """Give the flows of all groups from each place in the group to the place beside it, in batches."""
    per_batch = max(1, BATCH // len(group.members))
    for first in range(0, len(sources), per_batch):
        here, there = sources[first : first + per_batch], destinations[first : first + per_batch]
        yield Batch(
            sources=group.members[:, here].reshape(-1),
            destinations=group.members[:, there].reshape(-1),
            leaves=(group.domains[:, here] != group.domains[:, there]).reshape(-1),
        )


def in_batches(flows: Flows, *, leave: bool) -> Iterator[Batch]:
    """Give flows that all stay in their domains, or all leave them."""
    for first in range(0, len(flows.counts), BATCH):
        some = slice(first, first + BATCH)
        sources = flows.sources[some]
        yield Batch(
            sources=sources,
            destinations=flows.destinations[some],
            leaves=np.full(len(sources), fill_value=leave),
            counts=flows.counts[some],
        )
