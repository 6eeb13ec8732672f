"""Nodes and fabrics with figures chosen so that a mistake shows: no two bandwidths and no two latencies are alike."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np

from clustersim.hardware.models import (
    Accelerator,
    Fabric,
    FabricTopology,
    GraphSwitch,
    Host,
    Nic,
    Node,
    Routing,
    ScaleUp,
    ScaleUpKind,
    ServerHosts,
    Switch,
)
from clustersim.topology.cluster import TIERS, IntArray, Link
from clustersim.topology.wired import Cluster

SCALE_UP_BYTES_PER_S = 420e9
PCIE_BYTES_PER_S = 32e9
SOCKET_BYTES_PER_S = 20e9
NIC_BYTES_PER_S = 25e9
SCALE_UP_S = 0.5e-6
SERVER_NIC_BYTES_PER_S = 12.5e9
SERVER_MEMORY_BYTES_PER_S = 3e11
MEMORY_BYTES_PER_S = 4e11
NIC_S = 1.0e-6
SERVER_NIC_S = 1.5e-6
LEAF_S = 0.2e-6
SPINE_S = 0.4e-6
CABLE_S = 0.03e-6

SCALE_UP_LINKS: dict[ScaleUpKind, int] = {"nvswitch": 12, "cube_mesh": 6, "full_mesh": 7, "bridge_pairs": 4, "pcie": 0}


def make_fabric(
    topology: FabricTopology = "rail_optimized",
    *,
    nodes_per_leaf: int = 2,
    leaves_per_pod: int = 0,
    oversubscription: float = 1.0,
    core_oversubscription: float = 1.0,
    routing: Routing = "adaptive",
    seed: int = 0,
    dimensions: tuple[int, ...] = (),
    leaves_per_group: int = 2,
    global_links: int = 4,
    n_ports: int = 64,
) -> Fabric:
    return Fabric(
        topology=topology,
        leaf=Switch(name="leaf", n_ports=n_ports, port_bandwidth_bytes_per_s=NIC_BYTES_PER_S, latency_s=LEAF_S, sources=()),
        spine=Switch(name="spine", n_ports=n_ports, port_bandwidth_bytes_per_s=NIC_BYTES_PER_S, latency_s=SPINE_S, sources=()),
        nodes_per_leaf=nodes_per_leaf,
        leaves_per_pod=leaves_per_pod,
        oversubscription=oversubscription,
        core_oversubscription=core_oversubscription,
        routing=routing,
        cable_latency_s=CABLE_S,
        seed=seed,
        dimensions=dimensions,
        leaves_per_group=leaves_per_group,
        global_links=global_links,
    )


def fitted(fabric: Fabric, n_places: int) -> Fabric:
    """Return a fabric that so many places fit: a torus is a ring of them, and a graph has a leaf for every few and two spines."""
    if fabric.topology == "graph":
        leaves = [range(first, min(first + fabric.nodes_per_leaf, n_places)) for first in range(0, n_places, fabric.nodes_per_leaf)]
        return replace(
            fabric,
            graph=tuple(
                GraphSwitch(switch=f"leaf{number}", nodes=tuple(nodes), to={"spine0": 2, "spine1": 2})
                for number, nodes in enumerate(leaves)
            ),
        )
    return replace(fabric, dimensions=(n_places,)) if fabric.topology == "torus" else fabric


def make_servers(n_hosts: int = 2, n_nics: int = 1, n_sockets: int = 2) -> ServerHosts:
    host = replace(make_node(n_sockets=n_sockets).host, memory_bandwidth_bytes_per_s=SERVER_MEMORY_BYTES_PER_S)
    nic = Nic(name="server nic", bandwidth_bytes_per_s=SERVER_NIC_BYTES_PER_S, latency_s=SERVER_NIC_S, sources=())
    return ServerHosts(n_hosts=n_hosts, host=host, nic=nic, n_nics=n_nics)


def make_node(
    kind: ScaleUpKind = "nvswitch",
    *,
    n_accelerators: int = 8,
    n_nics: int = 8,
    accelerators_per_pcie_switch: int = 2,
    n_sockets: int = 2,
    nodes_per_domain: int = 1,
    scale_up_links: int | None = None,
    nic_latency_s: float = NIC_S,
    fabric: Fabric | None = None,
) -> Node:
    links = SCALE_UP_LINKS[kind] if scale_up_links is None else scale_up_links
    accelerator = Accelerator(
        name="card",
        vendor="nobody",
        generation="test",
        peak_flops_per_s={"bf16": 1e15},
        memory_bytes=80e9,
        memory_bandwidth_bytes_per_s=3e12,
        scale_up_bandwidth_bytes_per_s=SCALE_UP_BYTES_PER_S if links else 0.0,
        scale_up_links=links,
        pcie_bandwidth_bytes_per_s=PCIE_BYTES_PER_S,
        n_multiprocessors=100,
        power_w=None,
        sources=(),
    )
    host = Host(
        name="host",
        n_sockets=n_sockets,
        memory_bytes=1e12,
        memory_bandwidth_bytes_per_s=MEMORY_BYTES_PER_S,
        socket_bandwidth_bytes_per_s=SOCKET_BYTES_PER_S,
        storage_bandwidth_bytes_per_s=None,
        storage_write_bandwidth_bytes_per_s=None,
        sources=(),
    )
    return Node(
        name="box",
        accelerator=accelerator,
        n_accelerators=n_accelerators,
        scale_up=ScaleUp(kind=kind, nodes_per_domain=nodes_per_domain, latency_s=SCALE_UP_S),
        host=host,
        nic=Nic(name="nic", bandwidth_bytes_per_s=NIC_BYTES_PER_S, latency_s=nic_latency_s, sources=()),
        n_nics=n_nics,
        accelerators_per_pcie_switch=accelerators_per_pcie_switch,
        power_w=None,
        fabric=fabric or make_fabric(),
        sources=(),
    )


def ranks(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def all_pairs(n_ranks: int) -> tuple[IntArray, IntArray]:
    sources, destinations = np.divmod(np.arange(n_ranks * n_ranks, dtype=np.int64), n_ranks)
    return sources, destinations


TREES: tuple[FabricTopology, ...] = ("single_switch", "leaf_spine", "rail_optimized", "fat_tree")


def named_rows(cluster: Cluster, source: int, destination: int) -> list[tuple[str, float]]:
    """Return the links of one route with their shares."""
    routes = cluster.routes(ranks(source), ranks(destination))
    return [(cluster.link_name(int(link)), float(share)) for link, share in zip(routes.link_ids, routes.weights, strict=True)]


def wire_graph(cluster: Cluster, tiers: tuple[str, ...] | None = None) -> nx.DiGraph:
    """Return what the links join, with capacities; built from the ends of the links that work and from nothing else."""
    graph: nx.DiGraph = nx.DiGraph()
    for link_id, link in enumerate(cluster.links):
        if (tiers is not None and link.tier not in tiers) or (cluster.works is not None and not cluster.works[link_id]):
            continue
        tail, head = cluster.ends(link_id)
        before = graph.edges[tail, head]["capacity"] if graph.has_edge(tail, head) else 0.0
        graph.add_edge(tail, head, capacity=before + link.bandwidth_bytes_per_s)
    return graph


def accelerator_name(cluster: Cluster, rank: int) -> str:
    node, index = divmod(rank, cluster.node.n_accelerators)
    return f"node{node}/gpu{index}"


def adapters_of(cluster: Cluster, ranks: IntArray) -> IntArray:
    """Return the adapter of each rank; adapters count through the cluster, node by node."""
    layout, nodes = cluster, cluster.node_of(ranks)
    return layout.numbering.first_adapter[nodes] + layout.tables.adapter_of[layout.kind_of_place[nodes], cluster.local_index_of(ranks)]


def bisection_bytes_per_s(cluster: Cluster) -> float:
    """Return the maximum flow from the first half of a cluster to the second: from domains to domains, or from ranks to ranks of one."""
    if cluster.n_domains > 1:
        graph = wire_graph(cluster, ("nic", "leaf", "spine"))
        ends = [name for name in graph if name.startswith("node")]
        half = cluster.n_domains // 2 * cluster.node.scale_up.nodes_per_domain
        senders = [name for name in ends if int(name.split("/")[0].removeprefix("node")) < half]
    else:
        used = cluster.tier_index[cluster.routes(*all_pairs(cluster.n_ranks)).link_ids]
        graph = wire_graph(cluster, tuple(TIERS[index] for index in np.unique(used)))
        ends = [accelerator_name(cluster, rank) for rank in range(cluster.n_ranks)]
        senders = ends[: len(ends) // 2]
    graph.add_edges_from(("every sender", end) for end in senders)  # an edge without capacity is boundless
    graph.add_edges_from((end, "every receiver") for end in ends if end not in senders)
    return float(nx.maximum_flow_value(graph, "every sender", "every receiver"))


def route(cluster: Cluster, source: int, destination: int) -> tuple[Link, ...]:
    """Return the links from one endpoint to another, in order."""
    found = cluster.routes(np.array([source], dtype=np.int64), np.array([destination], dtype=np.int64))
    return tuple(cluster.links[int(link_id)] for link_id in found.link_ids)
