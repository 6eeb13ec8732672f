"""Independent concurrent messages: all-to-all, gather, scatter, and sends to the next rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.collectives.collective_flows import BATCH, Batch, between_members, crossings, gathered, separate_flow_sets
from clustersim.collectives.pattern import Algorithm, FlowSet, Grouping, Pattern
from clustersim.topology.cluster import IntArray
from clustersim.topology.link_demand import Crossings, RouteSet
from clustersim.topology.wired import Cluster

DirectOp = Literal["all_to_all", "gather", "scatter", "send_recv"]
Places = tuple[IntArray, IntArray]
"""Senders and receivers of messages, by their places in the group."""


def _to_everybody(n_ranks: int) -> Iterator[Places]:
    """Give all pairs of different places, those of a few distances at a time."""
    places = np.arange(n_ranks, dtype=np.int64)
    per_batch = max(1, BATCH // n_ranks)
    for first in range(1, n_ranks, per_batch):
        distances = np.arange(first, min(first + per_batch, n_ranks), dtype=np.int64)
        there = (places + distances[:, None]) % n_ranks
        yield np.tile(places, len(distances)), there.reshape(-1)


def _to_root(n_ranks: int) -> Iterator[Places]:
    yield np.arange(1, n_ranks, dtype=np.int64), np.zeros(n_ranks - 1, dtype=np.int64)


def _from_root(n_ranks: int) -> Iterator[Places]:
    yield np.zeros(n_ranks - 1, dtype=np.int64), np.arange(1, n_ranks, dtype=np.int64)


def _to_next(n_ranks: int) -> Iterator[Places]:
    if n_ranks > 1:
        places = np.arange(n_ranks, dtype=np.int64)
        yield places, np.roll(places, -1)


_MESSAGES: Final[Mapping[DirectOp, Callable[[int], Iterator[Places]]]] = MappingProxyType(
    {"all_to_all": _to_everybody, "gather": _to_root, "scatter": _from_root, "send_recv": _to_next}
)


def lay_direct(op: DirectOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return all messages concurrently, in one step: ``S / n`` each, or ``S`` where each rank sends to the next.

    Messages inside domains and between them are flow sets of their own: they share links, but do not wait for each other.
    """
    share = 1.0 if op == "send_recv" else 1.0 / group.size
    flow_sets = separate_flow_sets(cluster, _batches(op, group), share, itemised=len(group.members) > 1)
    return Pattern(phases=(flow_sets,), uniform=group.per_domain > 0)


def _batches(op: DirectOp, group: Grouping) -> Iterator[Batch]:
    for sources, destinations in _MESSAGES[op](group.size):
        yield from between_members(group, sources, destinations)


DIRECT: Final[Mapping[DirectOp, Algorithm]] = MappingProxyType(
    {op: Algorithm(name="direct", lay=partial(lay_direct, op)) for op in _MESSAGES}
)
"""Algorithm of independent messages, for each operation that it performs."""


def lay_transfers(cluster: Cluster, sources: IntArray, destinations: IntArray) -> Pattern:
    """Return flows from each source to the destination at the same place; the tensor is what one pair moves.

    What stays on its rank crosses no link. The step counts as one inside a domain only if no pair leaves its domain.
    """
    flows = crossings(cluster.routes(sources, destinations), sources, np.ones(len(sources)))
    leaves = bool((cluster.domain_of(sources) != cluster.domain_of(destinations)).any())
    return sends(flows, gathered([flows]), leaves=leaves)


def sends(flows: Crossings, route_set: RouteSet, *, leaves: bool) -> Pattern:
    """Return sends that put these flows on the links.

    Parameters
    ----------
    leaves
        Whether any of them leaves its domain.
    """
    n_links, latency_s = np.diff(flows.starts), float(flows.latency_s.max())
    flow_set = FlowSet(
        route_set=route_set,
        share=1.0 if len(flows.link_ids) else 0.0,
        intra_steps=0 if leaves else 1,
        inter_steps=1 if leaves else 0,
        intra_latency_s=0.0 if leaves else latency_s,
        inter_latency_s=latency_s if leaves else 0.0,
        crossings=(flows,),
    )
    return Pattern(phases=((flow_set,),), uniform=bool((n_links == n_links[0]).all()))
