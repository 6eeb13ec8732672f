"""Copies between accelerators, the memory of their nodes and its drives, and the work of a node's processors on that memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import beside_each, crossings, gathered
from clustersim.collectives.timing import Operation, SizedFlow
from clustersim.hardware.library_costs import Place
from clustersim.topology.cluster import FloatArray, IntArray, LinkFloats
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster

COPY_START_S: Final = 6e-6
"""Time to issue one copy to or from an accelerator, in seconds. [1]_ measures 5 to 7 us for a call of cudaMemcpyAsync; NVIDIA's own
latency of a small copy from pinned memory, as nvbandwidth and older samples show it, is of the same size.

.. [1] Wu et al., "DualPath: breaking the storage bandwidth bottleneck in agentic LLM inference", arXiv 2602.21548, section 5.2.
"""


def lay_copy(cluster: Cluster, ranks: IntArray, source: Place, destination: Place, *, size_bytes: float) -> Operation:
    """Return the link loads of copies of a number of bytes per rank, in lock-step over all ranks.

    Between an accelerator and the memory of its node they take the way over PCIe, between memory and drives the link of the drives
    in that direction, and each time the memory carries them once. Between an accelerator and a drive they pass through the memory:
    written there and read again.
    """
    hosts = cluster.node_of(ranks)
    memories = cluster.host_endpoint(hosts)
    parts: list[Crossings] = []
    latency_s, uniform = 0.0, _evenly_spread(hosts)
    if "accelerator" in (source, destination):
        ends = (ranks, memories) if source == "accelerator" else (memories, ranks)
        routes = cluster.routes(*ends)
        parts += [crossings(routes, ranks, np.ones(len(ranks))), beside_each(ranks, cluster.memory_link(hosts))]
        latency_s = COPY_START_S + float(routes.latency_s.max(initial=0.0))
        n_links = np.diff(routes.starts)
        uniform = uniform and bool((n_links == n_links[0]).all())
    if "nvme" in (source, destination):
        reads, writes = cluster.storage_links(hosts).T
        parts += [beside_each(ranks, reads if source == "nvme" else writes), beside_each(ranks, cluster.memory_link(hosts))]
    flow = SizedFlow(route_set=gathered(parts), bytes_per_flow=size_bytes, latency_s=latency_s, crossings=tuple(parts))
    return Operation(algorithm="copy", protocol="dma", phases=((flow,),), uniform=uniform)


def lay_update(cluster: Cluster, ranks: IntArray, usable_bytes_per_s: FloatArray | LinkFloats, *, size_bytes: float) -> Operation:
    """Return the memory traffic of the processors for each rank, in bytes.

    All ranks of a node share its memory. One rank alone reaches no more than the memory of one socket gives, because the pages of a
    process lie where the thread runs that first touched them.

    Parameters
    ----------
    usable_bytes_per_s
        Of each link.
    """
    hosts = cluster.node_of(ranks)
    links = cluster.memory_link(hosts)
    n_sockets = np.array([node.host.n_sockets for node, _ in cluster.kinds])[cluster.kind_of(hosts)]
    cap = float((usable_bytes_per_s[links] / n_sockets).min())
    work = beside_each(ranks, links)
    flow = SizedFlow(route_set=gathered([work]), bytes_per_flow=size_bytes, latency_s=0.0, cap_bytes_per_s=cap, crossings=(work,))
    return Operation(algorithm="update", protocol="processors", phases=((flow,),), uniform=_evenly_spread(hosts))


def _evenly_spread(hosts: IntArray) -> bool:
    """Return whether every host that serves any rank serves as many as the others."""
    counts = np.unique(hosts, return_counts=True)[1]
    return bool((counts == counts[0]).all())
