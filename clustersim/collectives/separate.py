"""Flows that do not wait for each other: those inside a domain end before those between domains, so each kind is a wave of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.collectives.collective_flows import BATCH, crossings, on_links
from clustersim.collectives.pattern import Flows, Grouping, Wave, footprint
from clustersim.topology.cluster import Cluster, FloatArray, IntArray
from clustersim.topology.link_demand import Crossings, Sum, chained


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


def separate_waves(cluster: Cluster, batches: Iterable[Batch], share: float, *, itemised: bool = False) -> tuple[Wave, ...]:
    """Return the wave of the flows inside domains and the wave of those between, one step each; one without flows is left out.

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
            loads[between].add(footprint(routes, None if batch.counts is None else batch.counts[chosen]))
            latencies_s[between] = max(latencies_s[between], float(routes.latency_s.max(initial=0.0)))
            if itemised:
                counts = np.ones(len(routes.latency_s)) if batch.counts is None else batch.counts[chosen]
                items[between].append(crossings(routes, batch.sources[chosen], counts))
            if batch.beside is not None:
                loads[between].add(on_links(batch.beside[chosen], batch.beside_weight))
    waves: list[Wave] = []
    for between in (0, 1):
        load = loads[between].footprint()
        if len(load.link_ids):
            waves.append(
                Wave(
                    footprint=load,
                    share=share,
                    intra_steps=1 - between,
                    inter_steps=between,
                    intra_latency_s=latencies_s[0] * (1 - between),
                    inter_latency_s=latencies_s[1] * between,
                    crossings=(chained(items[between]),) if items[between] else (),
                )
            )
    return tuple(waves)


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
