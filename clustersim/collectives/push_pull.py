"""Parameter servers: workers push gradients into the memory of hosts, which add them up, and pull parameters from there.

References
----------
.. [1] M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014: key ranges.
.. [2] Y. Jiang et al., "A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters",
   OSDI 2020 (BytePS): summation on hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import BATCH, NO_FLOWS, Batch, flow_set, on_links, separate_flow_sets
from clustersim.collectives.group_layout import layouts, ring_flows
from clustersim.collectives.pattern import FlowSet, Grouping, Pattern, grouping
from clustersim.hardware.library_costs import Servers
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster

ADDED_MEMORY_BYTES: Final = 4.0
"""Memory traffic of a gradient byte on its server, in bytes: the adapter writes it; to add it, it is read, the sum so far is read, and
the new sum is written. Caches hold neither: gradients are larger. Adapters that write into a cache (DDIO) could save up to 2."""
WRITTEN_MEMORY_BYTES: Final = 1.0
"""Memory traffic of a gradient byte without a sum to add it to, in bytes: the adapter writes it, and the update reads it."""
SENT_MEMORY_BYTES: Final = 1.0
"""Memory traffic of a byte that a server sends, in bytes: the adapter reads it."""


def greedy_holders(tensor_bytes: Sequence[float], n_servers: int) -> tuple[int, ...]:
    """Return which server gets each tensor: in order, each goes to the one that has least so far, the first of equals.

    References
    ----------
    .. [1] TensorFlow 1.3 and 1.15, ``contrib/training/python/training/device_setter.py``: ``GreedyLoadBalancingStrategy``.

    Examples
    --------
    >>> greedy_holders([6.0, 2.0, 1.0, 3.0], 2)
    (0, 1, 1, 1)
    """
    held_bytes = [0.0] * n_servers
    holders: list[int] = []
    for size_bytes in tensor_bytes:
        least = held_bytes.index(min(held_bytes))
        held_bytes[least] += size_bytes
        holders.append(least)
    return tuple(holders)


def lay_push(cluster: Cluster, group: Grouping, servers: Servers) -> Pattern:
    """Return the push of gradients: each worker sends each server its share of ``S``, and the server sums them.

    Flows that stay in a node do not wait for those that leave it; each kind is a flow set.
    """
    return Pattern(phases=_phases(_flights(cluster, group, servers, up=True)), uniform=group.per_domain > 0)


def lay_pull(cluster: Cluster, group: Grouping, servers: Servers) -> Pattern:
    """Return the pull of parameters: each worker receives its share of ``S`` from each server."""
    return Pattern(phases=_phases(_flights(cluster, group, servers, up=False)), uniform=group.per_domain > 0)


def lay_update(cluster: Cluster, group: Grouping, servers: Servers) -> Pattern:
    """Return what servers do with what has been added up: for each group every server reads and writes its share of ``S`` in its memory."""
    hosts = np.array(servers.hosts, dtype=np.int64)
    update = FlowSet(
        route_set=on_links(cluster.memory_link(hosts), float(len(group.members))),
        share=servers.share,
        intra_steps=0,
        inter_steps=0,
        intra_latency_s=0.0,
        inter_latency_s=0.0,
    )
    return Pattern(phases=((update,),), uniform=True)


def lay_push_pull(cluster: Cluster, group: Grouping, servers: Servers) -> Pattern:
    """Return a whole round: push, then pull."""
    push, pull = lay_push(cluster, group, servers), lay_pull(cluster, group, servers)
    return replace(push, phases=(*push.phases, *pull.phases))


def _phases(flow_sets: tuple[FlowSet, ...]) -> tuple[tuple[FlowSet, ...], ...]:
    return (flow_sets,) if flow_sets else ()


def _flights(cluster: Cluster, group: Grouping, servers: Servers, *, up: bool) -> tuple[FlowSet, ...]:
    """Return the coupled flows of one direction."""
    parts = np.ones(group.members.shape)
    hosts = np.array(servers.hosts, dtype=np.int64)
    flow_sets: list[FlowSet] = []
    ring_steps, ring_latency_s = 0, 0.0
    if servers.per_node:
        rings = _rings_inside(cluster, group)
        flow_sets += rings
        ring_steps = max((ring.intra_steps for ring in rings), default=0)
        ring_latency_s = max((ring.intra_latency_s for ring in rings), default=0.0)
        parts = 1.0 / _members_beside(group)
    weight = (WRITTEN_MEMORY_BYTES if _is_alone(group, servers) else ADDED_MEMORY_BYTES) if up else SENT_MEMORY_BYTES
    for part in np.unique(parts):
        workers = group.members[parts == part]
        batches = _batches(cluster, workers, hosts, up=up, weight=weight)
        for each in separate_flow_sets(cluster, batches, share=float(part * servers.share), itemised=len(group.members) > 1):
            # The first part that the servers get has gone round its node before.
            latency_s = max(each.intra_latency_s, ring_latency_s)
            flow_sets.append(replace(each, intra_steps=each.intra_steps + ring_steps, intra_latency_s=latency_s))
    return tuple(flow_sets)


def _is_alone(group: Grouping, servers: Servers) -> bool:
    """Return whether servers get one gradient only: of a lone worker, or of one domain that has added up its own."""
    if servers.adds:
        return False
    return group.members.shape[1] == 1 or (servers.per_node and bool(np.all(group.domains == group.domains[:, :1])))


def _members_beside(group: Grouping) -> IntArray:
    """Return how many members of its group each member has in its domain, itself included."""
    rows = np.arange(len(group.members), dtype=np.int64)[:, None]
    keys = rows * (int(group.domains.max()) + 1) + group.domains
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[places].reshape(keys.shape)


def _rings_inside(cluster: Cluster, group: Grouping) -> list[FlowSet]:
    """Return a reduce-scatter or an all-gather in each domain, ``(g - 1) / g * S`` per member; one coupled flow for each size of domain."""
    flow_sets: list[FlowSet] = []
    for layout in layouts(group):
        for block in layout.blocks():
            size = block.shape[1]
            if size > 1:
                flows = ring_flows(cluster, grouping(cluster, block))
                share = (size - 1) / size / flows.n_rings
                flow_sets.append(flow_set(cluster, inside=flows.inside, between=NO_FLOWS, share=share, steps=(size - 1, 0)))
    return flow_sets


def _batches(cluster: Cluster, workers: IntArray, hosts: IntArray, *, up: bool, weight: float) -> Iterator[Batch]:
    """Give the flows of each worker to or from each host."""
    domains = cluster.domain_of(workers)
    per_batch = max(1, BATCH // len(workers))
    for first in range(0, len(hosts), per_batch):
        some = hosts[first : first + per_batch]
        ranks, there = np.tile(workers, len(some)), np.repeat(some, len(workers))
        memories = cluster.host_endpoint(there)
        yield Batch(
            sources=ranks if up else memories,
            destinations=memories if up else ranks,
            ranks=ranks,
            leaves=cluster.domain_of_host(there) != np.tile(domains, len(some)),
            beside=cluster.memory_link(there),
            beside_weight=weight,
        )
