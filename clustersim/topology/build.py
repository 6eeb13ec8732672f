"""Lay the wires of a whole cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology import FABRICS
from clustersim.topology.changes import Changed, LinkChange, change_links
from clustersim.topology.cluster import TIERS, FloatArray, IntArray
from clustersim.topology.detours import detoured
from clustersim.topology.hashing import BoolArray
from clustersim.topology.layout import Layout
from clustersim.topology.names import names_a_spine
from clustersim.topology.node_wiring import (
    adapter_bandwidth_bytes_per_s,
    n_adapters,
    tables,
    wire_node,
    wire_server,
)
from clustersim.topology.reach import check_reach
from clustersim.topology.routing import Policy
from clustersim.topology.scale_out import Below, ScaleOut
from clustersim.topology.wired import WiredCluster


def build_cluster(
    node: Node,
    n_nodes: int,
    fabric: Fabric | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    servers: ServerHosts | None = None,
    seed: int = 0,
) -> WiredCluster:
    """Return so many nodes of one kind, wired and ready to be asked for routes.

    Parameters
    ----------
    fabric
        The network between the nodes; the node's reference fabric when left out.
    changes
        Links that are not as built: slower, down, or half-duplex.
    servers
        Dedicated hosts on the same fabric; they stand where further nodes would.
    seed
        Of the hash by which ECMP picks paths, beside that of the fabric.

    Raises
    ------
    ScenarioError
        The node or the fabric cannot be wired as described, or links that are down cut off some ranks.
    """
    fabric = node.fabric if fabric is None else fabric
    _check(node, n_nodes, fabric, servers)
    layout = _laid(node, n_nodes, fabric, changes, servers)
    bandwidth_bytes_per_s, latency_s, tier_index = _link_arrays(layout)
    _check_bandwidth(layout, bandwidth_bytes_per_s)
    policy = Policy(seed=_mixed_seed(fabric.seed, seed) if fabric.routing == "ecmp" else None)
    works: BoolArray | None = None
    shared: IntArray | None = None
    if changes:
        changed = change_links(layout, bandwidth_bytes_per_s, latency_s, changes)
        layout, policy = _worn(layout, policy, bandwidth_bytes_per_s, changed)
        bandwidth_bytes_per_s, latency_s, shared = changed.bandwidth_bytes_per_s, changed.latency_s, changed.shared
        works = None if changed.works.all() else changed.works
        if works is not None:
            check_reach(layout, policy, works, changes)
    for array in (bandwidth_bytes_per_s, latency_s, tier_index):
        array.flags.writeable = False
    return WiredCluster(
        fabric=fabric,
        layout=layout,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_s,
        tier_index=tier_index,
        policy=policy,
        works=works,
        shared=shared,
    )


def _laid(node: Node, n_nodes: int, fabric: Fabric, changes: Sequence[LinkChange], servers: ServerHosts | None) -> Layout:
    """Return the shape of a cluster as built.

    Where one domain holds all nodes, the fabric is laid for servers, and as a way around links of the domain that are down.
    """
    n_servers = servers.n_hosts if servers else 0
    goes_around = n_nodes > 1 and node.n_nics > 0 and any(change.down for change in changes)
    scale_out: ScaleOut | None = None
    if n_nodes > node.scale_up.nodes_per_domain or servers is not None or goes_around:
        below = Below(
            n_places=n_nodes + n_servers,
            n_adapters=n_adapters(node),
            adapter_bandwidth_bytes_per_s=adapter_bandwidth_bytes_per_s(node),
            one_by_one=any(names_a_spine(name) for change in changes for name in change.between),
        )
        scale_out = FABRICS[fabric.topology](fabric, below)
    wiring = wire_node(node, fabric if scale_out else None)
    server_wiring = wire_server(servers, fabric) if servers else None
    kinds = [(wiring, wiring.paths)] + ([(server_wiring, server_wiring.paths)] if server_wiring else [])
    return Layout(
        node=node,
        n_nodes=n_nodes,
        servers=servers,
        wiring=wiring,
        server_wiring=server_wiring,
        scale_out=scale_out,
        tables=tables(kinds, n_endpoints=node.n_accelerators + 1),
        kind_of_place=np.repeat(np.array([0, 1], dtype=np.int64), [n_nodes, n_servers]),
    )


def _worn(layout: Layout, policy: Policy, as_built_bytes_per_s: FloatArray, changed: Changed) -> tuple[Layout, Policy]:
    """Return layout and policy that know of changed links: detours in the places, and what is left of the links of the fabric."""
    begin, end = layout.first_fabric_link, layout.first_memory_link
    left_fraction = np.where(changed.works[begin:end], changed.bandwidth_bytes_per_s[begin:end] / as_built_bytes_per_s[begin:end], 0.0)
    if np.any(left_fraction != 1.0):
        policy = replace(policy, left_fraction=left_fraction)
    kinds = [(layout.wiring, layout.wiring.paths)]
    if layout.server_wiring is not None:
        kinds.append((layout.server_wiring, layout.server_wiring.paths))
    kind_of_place = layout.kind_of_place.copy()
    n_node_wires = layout.n_nodes * len(layout.wiring.wires)
    for wiring, first_link, n_links, first_place in (
        (layout.wiring, 0, n_node_wires, 0),
        (layout.server_wiring, n_node_wires, begin - n_node_wires, layout.n_nodes),
    ):
        if wiring is None:
            continue
        broken = ~changed.works[first_link : first_link + n_links].reshape(-1, len(wiring.wires))
        places = np.flatnonzero(np.any(broken, axis=1))
        patterns, inverse = np.unique(broken[places], axis=0, return_inverse=True)
        kind_of_place[first_place + places] = len(kinds) + inverse.reshape(-1)
        kinds.extend((wiring, detoured(wiring, [int(number) for number in np.flatnonzero(pattern)])) for pattern in patterns)
    if len(kinds) > int(layout.kind_of_place.max()) + 1:
        found = tables(kinds, n_endpoints=layout.node.n_accelerators + 1)
        layout = replace(layout, tables=found, kind_of_place=kind_of_place)
    return layout, policy


def _mixed_seed(fabric_seed: int, seed: int) -> int:
    return fabric_seed + (seed << 32)


def _check_bandwidth(layout: Layout, bandwidth_bytes_per_s: FloatArray) -> None:
    dead = np.flatnonzero(~(bandwidth_bytes_per_s > 0))
    if len(dead):
        raise ScenarioError(f"link {layout.link_name(int(dead[0]))} has no bandwidth", field="cluster", hint="give it one above zero")


def _check(node: Node, n_nodes: int, fabric: Fabric, servers: ServerHosts | None) -> None:
    counts = {
        "cluster.nodes": n_nodes,
        "cluster.accelerators_per_node": node.n_accelerators,
        "cluster.node.accelerators_per_pcie_switch": node.accelerators_per_pcie_switch,
        "cluster.node.host.n_sockets": node.host.n_sockets,
        "cluster.node.scale_up.nodes_per_domain": node.scale_up.nodes_per_domain,
        "cluster.fabric.nodes_per_leaf": fabric.nodes_per_leaf,
    }
    if servers is not None:
        counts |= {"servers": servers.n_hosts, "servers.nics": servers.n_nics, "servers.host.n_sockets": servers.host.n_sockets}
    for field, count in counts.items():
        if count < 1:
            raise ScenarioError(f"{count} is too few", field=field, hint="use 1 or more")
    if fabric.leaves_per_pod < 0:
        raise ScenarioError(f"{fabric.leaves_per_pod} leaves in a pod", field="cluster.fabric.leaves_per_pod", hint="use 0 for two tiers")
    for field, ratio in (("oversubscription", fabric.oversubscription), ("core_oversubscription", fabric.core_oversubscription)):
        if not 0 < ratio < float("inf"):
            raise ScenarioError(f"{ratio} is not a ratio of bandwidths", field=f"cluster.fabric.{field}", hint="use a number above zero")
    if node.scale_up.nodes_per_domain > 1 and node.scale_up.kind != "nvswitch":
        raise ScenarioError(
            f"a domain of kind {node.scale_up.kind} cannot span {node.scale_up.nodes_per_domain} nodes",
            field="cluster.node.scale_up.nodes_per_domain",
            hint="use 1, or kind nvswitch",
        )
    if node.n_nics < 1 and (n_nodes > node.scale_up.nodes_per_domain or servers is not None):
        raise ScenarioError(
            f"{n_nodes} nodes have no network adapters between them" if servers is None else "nodes without adapters cannot reach servers",
            field="cluster.nics",
            hint=f"give each one or more, or use {node.scale_up.nodes_per_domain} node(s) and no servers",
        )


def _link_arrays(layout: Layout) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return bandwidth, latency and tier of the wires of each place, of the fabric's links, and of the hosts' memories."""
    bandwidths: list[FloatArray] = []
    latencies: list[FloatArray] = []
    tiers: list[IntArray] = []
    for wiring, count in ((layout.wiring, layout.n_nodes), (layout.server_wiring, layout.n_servers)):
        wires = wiring.wires if wiring else ()
        bandwidths.append(np.tile(np.array([wire.bandwidth_bytes_per_s for wire in wires], dtype=np.float64), count))
        latencies.append(np.tile(np.array([wire.latency_s for wire in wires], dtype=np.float64), count))
        tiers.append(np.tile(np.array([TIERS.index(wire.tier) for wire in wires], dtype=np.int64), count))
    if layout.scale_out is not None:
        bandwidths.append(layout.scale_out.bandwidth_bytes_per_s)
        latencies.append(layout.scale_out.latency_s)
        tiers.append(layout.scale_out.tier_index)
    for host, count in ((layout.node.host, layout.n_nodes), (layout.servers.host if layout.servers else None, layout.n_servers)):
        bandwidths.append(np.full(count, host.memory_bandwidth_bytes_per_s if host else 0.0))
        latencies.append(np.zeros(count))
        tiers.append(np.full(count, TIERS.index("memory"), dtype=np.int64))
    return np.concatenate(bandwidths), np.concatenate(latencies), np.concatenate(tiers)
