"""Lay the wires of a whole cluster, once for many runs on a small one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.errors import DomainError, inside
from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology import FABRICS
from clustersim.topology.cluster import TIERS, BoolArray, FloatArray, IntArray, LinkFloats, LinkInts, LinkValues
from clustersim.topology.cluster_layout import ClusterLayout, PlaceGroup, numbered
from clustersim.topology.names import Changed, LinkChange, change_links, names_a_spine
from clustersim.topology.node_wiring import (
    adapter_bandwidth_bytes_per_s,
    n_adapters,
    tables,
    wire_node,
    wire_server,
)
from clustersim.topology.reach import check_reach, detoured
from clustersim.topology.routing import RoutingPolicy
from clustersim.topology.scale_out import Below, ScaleOut
from clustersim.topology.wired import Cluster


def build_cluster(
    node: Node,
    n_nodes: int,
    fabric: Fabric | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    servers: ServerHosts | None = None,
    seed: int = 0,
) -> Cluster:
    """Return a wired cluster of nodes of one kind; see :func:`build_mixed_cluster`."""
    return build_mixed_cluster(((node, n_nodes),), fabric, changes=changes, servers=servers, seed=seed)


@inside("cluster")
def build_mixed_cluster(
    kinds: Sequence[tuple[Node, int]],
    fabric: Fabric | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    servers: ServerHosts | None = None,
    seed: int = 0,
) -> Cluster:
    """Return a wired cluster of nodes of one or several kinds on one fabric.

    Parameters
    ----------
    kinds
        Each kind of node and how many there are; nodes and ranks count in this order. No scale-up domain holds nodes of two kinds.
    fabric
        The network between the nodes; the reference fabric of the first kind when left out.
    changes
        Links that are not as built: slower, down, or half-duplex.
    servers
        Dedicated hosts on the same fabric; they stand where further nodes would.
    seed
        Of the hash by which ECMP picks paths, beside that of the fabric.
    """
    fabric = kinds[0][0].fabric if fabric is None else fabric
    _check(kinds, fabric, servers)
    layout = _laid(kinds, fabric, changes, servers)
    as_built_bytes_per_s, latency_s, tier_index = _of_links(layout)
    bandwidth_bytes_per_s = as_built_bytes_per_s
    policy = RoutingPolicy(seed=fabric.seed + (seed << 32) if fabric.routing == "ecmp" else None)
    works: BoolArray | None = None
    changed: Changed | None = None
    if changes:
        built_bytes_per_s = np.asarray(as_built_bytes_per_s)
        changed = change_links(layout, built_bytes_per_s, np.asarray(latency_s), changes)
        layout, policy = _worn(layout, policy, built_bytes_per_s, changed)
        columns, tiers = (changed.bandwidth_bytes_per_s, built_bytes_per_s, changed.latency_s), np.asarray(tier_index)
        of_links, firsts = _kinds((*columns, tiers))
        bandwidth_bytes_per_s, as_built_bytes_per_s, latency_s = (LinkValues(of_links, column[firsts]) for column in columns)
        tier_index = LinkValues(of_links, tiers[firsts])
        works = None if changed.works.all() else changed.works
        if works is not None:
            check_reach(layout, policy, works, changes)
    return Cluster(
        fabric=fabric,
        **{each.name: getattr(layout, each.name) for each in fields(layout)},
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        as_built_bytes_per_s=as_built_bytes_per_s,
        latency_s=latency_s,
        tier_index=tier_index,
        policy=policy,
        works=works,
        shared=changed.shared if changed else None,
        changed_links=changed.links if changed else (),
    )


def _laid(kinds: Sequence[tuple[Node, int]], fabric: Fabric, changes: Sequence[LinkChange], servers: ServerHosts | None) -> ClusterLayout:
    """Return the shape of a cluster as built.

    Where one domain holds all nodes, the fabric is laid for servers, and as a way around links of the domain that are down.
    """
    n_nodes = sum(count for _, count in kinds)
    goes_around = n_nodes > 1 and kinds[0][0].n_nics > 0 and any(change.state == "down" for change in changes)
    scale_out: ScaleOut | None = None
    if _n_domains(kinds) > 1 or servers is not None or goes_around:
        one_by_one = any(names_a_spine(name) for change in changes for name in change.between)
        scale_out = FABRICS[fabric.topology](fabric, _below(kinds, servers, one_by_one=one_by_one))
    laid = fabric if scale_out else None
    groups: list[PlaceGroup] = []
    for kind, (node, count) in enumerate(kinds):
        with inside("kinds", kind):
            groups.append(PlaceGroup(node=node, host=node.host, wiring=wire_node(node, laid), n_places=count))
    if servers is not None:
        groups.append(PlaceGroup(node=None, host=servers.host, wiring=wire_server(servers, fabric), n_places=servers.n_hosts))
    numbering = numbered(groups)
    return ClusterLayout(
        groups=tuple(groups),
        numbering=numbering,
        n_rails=max(n_adapters(node) for node, _ in kinds),
        servers=servers,
        scale_out=scale_out,
        tables=tables([(group.wiring, group.wiring.paths) for group in groups], n_endpoints=_n_endpoints(groups)),
        kind_of_place=numbering.group_of,
    )


def _below(kinds: Sequence[tuple[Node, int]], servers: ServerHosts | None, *, one_by_one: bool) -> Below:
    n_rails = max(n_adapters(node) for node, _ in kinds)
    widths = [adapter_bandwidth_bytes_per_s(node) * (n_adapters(node) / n_rails) for node, _ in kinds]
    counts = [count for _, count in kinds]
    counts[-1] += servers.n_hosts if servers else 0
    return Below(
        n_places=sum(counts),
        n_adapters=n_rails,
        adapter_bandwidth_bytes_per_s=np.repeat(np.array(widths, dtype=np.float64), counts),
        one_by_one=one_by_one,
    )


def _n_endpoints(groups: Sequence[PlaceGroup]) -> int:
    return max(group.n_accelerators for group in groups) + 1


def _n_domains(kinds: Sequence[tuple[Node, int]]) -> int:
    return sum(-(-count // node.scale_up.nodes_per_domain) for node, count in kinds)


def _worn(
    layout: ClusterLayout, policy: RoutingPolicy, as_built_bytes_per_s: FloatArray, changed: Changed
) -> tuple[ClusterLayout, RoutingPolicy]:
    """Return layout and routing policy after changes of links: detours inside places, and the remaining links of the fabric."""
    begin, end = layout.first_fabric_link, layout.first_memory_link
    left_fraction = np.where(changed.works[begin:end], changed.bandwidth_bytes_per_s[begin:end] / as_built_bytes_per_s[begin:end], 0.0)
    if np.any(left_fraction != 1.0):
        policy = replace(policy, left_fraction=left_fraction)
    kinds = [(group.wiring, group.wiring.paths) for group in layout.groups]
    kind_of_place = layout.kind_of_place.copy()
    first_places = np.array(layout.numbering.first_place, dtype=np.int64)
    for group, first_place in zip(layout.groups, first_places[:-1], strict=True):
        first_link, n_wires = int(layout.numbering.first_wire[first_place]), len(group.wiring.wires)
        broken = ~changed.works[first_link : first_link + group.n_places * n_wires].reshape(-1, n_wires)
        places = np.flatnonzero(np.any(broken, axis=1))
        patterns, inverse = np.unique(broken[places], axis=0, return_inverse=True)
        kind_of_place[first_place + places] = len(kinds) + inverse.reshape(-1)
        kinds.extend((group.wiring, detoured(group.wiring, [int(number) for number in np.flatnonzero(pattern)])) for pattern in patterns)
    if len(kinds) > len(layout.groups):
        layout = replace(layout, tables=tables(kinds, n_endpoints=_n_endpoints(layout.groups)), kind_of_place=kind_of_place)
    return layout, policy


def _check(kinds: Sequence[tuple[Node, int]], fabric: Fabric, servers: ServerHosts | None) -> None:
    """Refuse domains that their wires cannot span, nodes that nothing joins to the others, and kinds that rails do not fit."""
    first, rails, several = kinds[0][0], n_adapters(kinds[0][0]), len(kinds) > 1
    reached = several or _n_domains(kinds) > 1 or servers is not None
    for kind, (node, _) in enumerate(kinds):
        domain_size = node.scale_up.nodes_per_domain
        if domain_size > 1 and node.scale_up.kind != "nvswitch":
            raise DomainError(
                f"a domain of kind {node.scale_up.kind} cannot span {domain_size} nodes",
                path=("kinds", kind, "scale_up", "nodes_per_domain"),
                hint="use 1, or kind nvswitch",
            )
        if node.n_nics < 1 and reached:
            fewer = "" if several else f", or use {domain_size} node(s) and no servers"
            raise DomainError(
                f"{node.name} has no network adapters to reach {'the other nodes' if servers is None else 'the servers'}",
                path=("kinds", kind, "n_nics"),
                hint=f"give it one or more{fewer}",
            )
        if n_adapters(node) != rails and fabric.topology == "rail_optimized":
            raise DomainError(
                f"a node of kind {first.name} is on {rails} rails, and one of kind {node.name} on {n_adapters(node)}",
                path=("fabric", "topology"),
                hint=f"give both {rails} adapters, or use topology leaf_spine",
            )


def _of_links(layout: ClusterLayout) -> tuple[LinkFloats, LinkFloats, LinkInts]:
    """Return bandwidth, latency and tier of the wires of each place, of the fabric's links, and of the hosts' memories and drives."""
    parts: list[tuple[FloatArray, FloatArray, IntArray, int]] = []
    """Links that are repeated, and how often."""

    def add(bandwidths_bytes_per_s: Sequence[float], latencies_s: Sequence[float], tiers: Sequence[str], times: int) -> None:
        numbers = np.array([TIERS.index(tier) for tier in tiers], dtype=np.int64)
        parts.append((np.array(bandwidths_bytes_per_s, dtype=np.float64), np.array(latencies_s, dtype=np.float64), numbers, times))

    for group in layout.groups:
        wires = group.wiring.wires
        bandwidths_bytes_per_s, latencies_s = [wire.bandwidth_bytes_per_s for wire in wires], [wire.latency_s for wire in wires]
        add(bandwidths_bytes_per_s, latencies_s, [wire.tier for wire in wires], group.n_places)
    if layout.scale_out is not None:
        parts.append((layout.scale_out.bandwidth_bytes_per_s, layout.scale_out.latency_s, layout.scale_out.tier_index, 1))
    for group in layout.groups:
        add([group.host.memory_bandwidth_bytes_per_s], [0.0], ["memory"], group.n_places)
    for group in layout.groups:
        reads, writes = group.host.storage_bandwidth_bytes_per_s, group.host.storage_write_bandwidth_bytes_per_s
        if reads and writes:
            add([reads, writes], [0.0, 0.0], ["storage", "storage"], group.n_places)
    bandwidth_bytes_per_s, latency_s, tier = (np.concatenate([part[column] for part in parts]) for column in range(3))
    of_parts, firsts = _kinds((bandwidth_bytes_per_s, latency_s, tier))
    ends = np.cumsum([len(part[0]) for part in parts])[:-1]
    kinds = np.concatenate([np.tile(own, part[3]) for own, part in zip(np.split(of_parts, ends), parts, strict=True)])
    return LinkValues(kinds, bandwidth_bytes_per_s[firsts]), LinkValues(kinds, latency_s[firsts]), LinkValues(kinds, tier[firsts])


def _kinds(columns: Sequence[FloatArray | IntArray]) -> tuple[NDArray[np.int32], IntArray]:
    """Return the kind of each link, equal where all columns are, and the first link of each kind."""
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        # Kinds are few, so that a search among them is faster than sorting all links.
        distinct = np.unique(column)
        keys = keys * len(distinct) + np.searchsorted(distinct, column)
        keys = np.searchsorted(np.unique(keys), keys)
    firsts = np.empty(int(keys.max()) + 1, dtype=np.int64)
    firsts[keys[::-1]] = np.arange(len(keys) - 1, -1, -1, dtype=np.int64)
    return keys.astype(np.int32), firsts


MOST_RANKS: Final = 1 << 15
"""Most ranks of a cluster that is cached. A larger one takes more memory."""
N_KEPT: Final = 16
"""Number of cached clusters; the oldest is dropped first."""

_Asked = tuple[tuple[tuple[Node, int], ...], Fabric | None, tuple[LinkChange, ...], ServerHosts | None]
_LATELY: Final[deque[tuple[_Asked, Cluster]]] = deque(maxlen=N_KEPT)


def cluster_of(
    kinds: Sequence[tuple[Node, int]],
    fabric: Fabric | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    servers: ServerHosts | None = None,
) -> Cluster:
    """Return the result of :func:`build_mixed_cluster`, cached by equal arguments; a cluster never changes."""
    asked = (tuple(kinds), fabric, tuple(changes), servers)
    for known, cluster in tuple(_LATELY):
        if known == asked:
            return cluster
    cluster = build_mixed_cluster(kinds, fabric, changes=changes, servers=servers)
    if cluster.n_ranks <= MOST_RANKS:
        _LATELY.append((asked, cluster))
    return cluster
