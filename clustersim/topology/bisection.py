"""Bisection bandwidth: from one half of a cluster to the other at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from math import fsum

import numpy as np

from clustersim.topology.bundles import BundledTree
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.pcie import n_pcie_switches, socket_of_switch
from clustersim.topology.scale_out import ScaleOut
from clustersim.topology.wired import WiredCluster

_ROUND_OFF = 1e-12
"""Share of the largest capacity below which nothing is left of one."""


def max_flow(capacity: Mapping[tuple[str, str], float], source: str, sink: str) -> float:
    """Return the greatest flow from one place to another.

    Parameters
    ----------
    capacity
        Of each directed connection, by the places that it leads from and to.

    References
    ----------
    .. [1] E. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.

    Examples
    --------
    >>> max_flow({("a", "b"): 2.0, ("a", "c"): 5.0, ("b", "d"): 4.0, ("c", "d"): 1.0, ("c", "b"): 1.0}, "a", "d")
    4.0
    """
    left: dict[str, dict[str, float]] = {source: {}, sink: {}}
    for (tail, head), width in capacity.items():
        left.setdefault(tail, {})[head] = left.get(tail, {}).get(head, 0.0) + width
        left.setdefault(head, {}).setdefault(tail, 0.0)
    nothing = _ROUND_OFF * max(capacity.values(), default=0.0)
    total = 0.0
    while True:
        levels = _levels(left, source, nothing)
        if sink not in levels:
            return total
        tried = {place: list(heads) for place, heads in left.items()}
        while (pushed := _pushed(left, levels, tried, (source, sink), nothing)) > 0.0:
            total += pushed


def _levels(left: Mapping[str, Mapping[str, float]], source: str, nothing: float) -> dict[str, int]:
    """Return how many steps each place is from the source, over what is left."""
    levels = {source: 0}
    queue = deque([source])
    while queue:
        place = queue.popleft()
        for head, width in left[place].items():
            if width > nothing and head not in levels:
                levels[head] = levels[place] + 1
                queue.append(head)
    return levels


def _pushed(
    left: Mapping[str, dict[str, float]], levels: Mapping[str, int], tried: Mapping[str, list[str]], ends: tuple[str, str], nothing: float
) -> float:
    """Push along one path that takes a level each step, and return how much; 0 when no such path is left."""
    path = [ends[0]]
    while path[-1] != ends[1]:
        place, heads = path[-1], tried[path[-1]]
        while heads and not (left[place][heads[-1]] > nothing and levels.get(heads[-1]) == levels[place] + 1):
            heads.pop()
        if heads:
            path.append(heads[-1])
        elif len(path) == 1:
            return 0.0
        else:
            path.pop()
            tried[path[-1]].pop()
    steps = list(pairwise(path))
    width = min(left[tail][head] for tail, head in steps)
    for tail, head in steps:
        left[tail][head] -= width
        left[head][tail] += width
    return width


def bisection_bandwidth_bytes_per_s(cluster: WiredCluster) -> float:
    """Return what the first half of a cluster can send to the second half at once, in bytes per second, one direction.

    In a cluster of several scale-up domains the halves are domains, in order, and the adapters and the fabric are what
    limits. In a cluster of one domain the halves are ranks, in order. Of an odd number the second half gets one more.

    Notes
    -----
    A tree of bundles needs no search for its maximum flow. Below each switch, from the bottom up, senders and receivers are matched
    as far as they go; the rest climbs, as far as the way up (of what is still to be sent) or down (of what is still to be
    received) allows. Matching low never hurts: a flow that climbs and one that comes down through the same switch can
    be exchanged for one that turns there, and for whatever was at their other ends. A fabric that is no tree is searched.
    """
    if cluster.works is not None:
        cluster = replace(cluster, bandwidth_bytes_per_s=np.where(cluster.works, cluster.bandwidth_bytes_per_s, 0.0), works=None)
    if cluster.n_domains > 1:
        return _across_domains(cluster)
    if len(cluster.wiring.ports):
        return _across_switch(cluster)
    return _across_node(cluster)


def _across_domains(cluster: WiredCluster) -> float:
    layout, scale_out = cluster.layout, cluster.scale_out
    assert scale_out is not None  # several domains imply a fabric
    node, transmit, receive, leaf = _adapters(layout, scale_out)
    first_half = layout.numbering.domain_of[node] < cluster.n_domains // 2
    supply = np.where(first_half, cluster.bandwidth_bytes_per_s[transmit], 0.0)
    demand = np.where(first_half, 0.0, cluster.bandwidth_bytes_per_s[receive])
    met, supply, demand = _matched(supply, demand, leaf, scale_out.n_leaves)
    if isinstance(scale_out, BundledTree):
        return met + _through_tree(cluster, scale_out, supply, demand)
    return met + _through_links(cluster, scale_out, supply, demand)


def _adapters(layout: ClusterLayout, scale_out: ScaleOut) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return, for each adapter of each node, the node, the links out of it and into it, and its leaf."""
    found: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
    for group, first_place in zip(layout.node_groups, layout.numbering.first_place, strict=False):
        wiring = group.wiring
        numbers = [[wiring.number_of(f"nic{index}/{way}") for index in range(wiring.n_adapters)] for way in ("tx", "rx")]
        node, adapter = np.divmod(np.arange(group.n_places * wiring.n_adapters, dtype=np.int64), wiring.n_adapters)
        node += first_place
        transmit, receive = (layout.first_wire(node) + np.array(ways, dtype=np.int64)[adapter] for ways in numbers)
        found.append((node, transmit, receive, scale_out.leaf_of(node, layout.rails_of(node, adapter))))
    node, transmit, receive, leaf = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return node, transmit, receive, leaf


def _through_tree(cluster: WiredCluster, tree: BundledTree, supply: FloatArray, demand: FloatArray) -> float:
    """Return what leaves that still send can exchange with leaves that still receive."""
    first, met = cluster.layout.first_fabric_link, 0.0
    if tree.n_leaves > 1:
        leaves = np.arange(tree.n_leaves, dtype=np.int64)
        supply, demand = _climbing(cluster, supply, demand, first + tree.leaf_up(leaves))
        met, supply, demand = _matched(supply, demand, tree.leaves.pod_of(leaves), tree.leaves.n_pods)
    if tree.leaves.n_pods > 1:
        supply, demand = _climbing(cluster, supply, demand, first + tree.pod_up(np.arange(tree.leaves.n_pods, dtype=np.int64)))
    return met + min(float(supply.sum()), float(demand.sum()))


def _through_links(cluster: WiredCluster, scale_out: ScaleOut, supply: FloatArray, demand: FloatArray) -> float:
    """Return the same where the fabric is no tree of bundles, by search."""
    capacity: dict[tuple[str, str], float] = {}
    for link in range(len(scale_out.tier_index)):
        ends = scale_out.ends(link)
        width = float(cluster.bandwidth_bytes_per_s[cluster.layout.first_fabric_link + link])
        capacity[ends] = capacity.get(ends, 0.0) + width
    for leaf in range(scale_out.n_leaves):
        capacity["every sender", scale_out.leaf_name(leaf)] = float(supply[leaf])
        capacity[scale_out.leaf_name(leaf), "every receiver"] = float(demand[leaf])
    return max_flow(capacity, "every sender", "every receiver")


def _across_switch(cluster: WiredCluster) -> float:
    half = cluster.n_ranks // 2
    base = np.repeat(np.arange(cluster.n_nodes, dtype=np.int64) * len(cluster.wiring.wires), cluster.node.n_accelerators)
    ports = np.array(cluster.wiring.ports, dtype=np.int64)
    up, down = (base + np.tile(ports[:, side], cluster.n_nodes) for side in (0, 1))
    sent = float(cluster.bandwidth_bytes_per_s[up[:half]].sum())
    return min(sent, float(cluster.bandwidth_bytes_per_s[down[half:]].sum()))


def _across_node(cluster: WiredCluster) -> float:
    """Return the direct links that cross the middle and, where PCIe joins the domain, what its tree adds."""
    n, wiring, half = cluster.node.n_accelerators, cluster.wiring, cluster.node.n_accelerators // 2
    direct = np.array(
        [wiring.number_of(wiring.paths.inside[a, b][0]) for a in range(half) for b in range(half, n) if _is_direct(cluster, a, b)],
        dtype=np.int64,
    )
    crossing = float(cluster.bandwidth_bytes_per_s[direct].sum())
    return crossing + (_across_pcie(cluster) if wiring.pcie_in_domain else 0.0)


def _is_direct(cluster: WiredCluster, a: int, b: int) -> bool:
    return len(cluster.wiring.paths.inside[a, b]) == 1


def _across_pcie(cluster: WiredCluster) -> float:
    node, wiring, bandwidth_bytes_per_s = cluster.node, cluster.wiring, cluster.bandwidth_bytes_per_s
    ranks = np.arange(node.n_accelerators, dtype=np.int64)
    half = node.n_accelerators // 2
    up = np.array([wiring.number_of(f"gpu{rank}/pcie/up") for rank in ranks], dtype=np.int64)
    supply = np.where(ranks < half, bandwidth_bytes_per_s[up], 0.0)
    demand = np.where(ranks < half, 0.0, bandwidth_bytes_per_s[up + 1])
    n_switches = n_pcie_switches(node)
    met, supply, demand = _matched(supply, demand, ranks // node.accelerators_per_pcie_switch, n_switches)
    switch_up = np.array([wiring.number_of(f"pcie{switch}/up") for switch in range(n_switches)], dtype=np.int64)
    supply, demand = _climbing(cluster, supply, demand, switch_up)
    socket = np.array([socket_of_switch(node, switch) for switch in range(n_switches)], dtype=np.int64)
    met_in_socket, supply, demand = _matched(supply, demand, socket, node.host.n_sockets)
    return met + met_in_socket + _across_sockets(cluster, supply, demand)


def _across_sockets(cluster: WiredCluster, supply: FloatArray, demand: FloatArray) -> float:
    """Return the least cut between sockets that still send and sockets that still receive: every division is tried."""
    n_sockets = len(supply)
    cuts: list[float] = []
    for sends in product((False, True), repeat=n_sockets):
        cut = fsum(float(demand[k]) if sends[k] else float(supply[k]) for k in range(n_sockets))
        for a in range(n_sockets):
            for b in range(n_sockets):
                if sends[a] and not sends[b]:
                    cut += float(cluster.bandwidth_bytes_per_s[cluster.wiring.number_of(f"socket{a}/to{b}")])
        cuts.append(cut)
    return min(cuts)


def _matched(supply: FloatArray, demand: FloatArray, group: IntArray, n_groups: int) -> tuple[float, FloatArray, FloatArray]:
    """Return what senders and receivers of the same group exchange, and what is left of each group."""
    sent = np.bincount(group, weights=supply, minlength=n_groups).astype(np.float64)
    received = np.bincount(group, weights=demand, minlength=n_groups).astype(np.float64)
    met = np.minimum(sent, received)
    return float(met.sum()), sent - met, received - met


def _climbing(cluster: WiredCluster, supply: FloatArray, demand: FloatArray, up: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return what gets through the ways up and down; the id of a way down is the one after its way up."""
    bandwidth_bytes_per_s = cluster.bandwidth_bytes_per_s
    return np.minimum(supply, bandwidth_bytes_per_s[up]), np.minimum(demand, bandwidth_bytes_per_s[up + 1])
