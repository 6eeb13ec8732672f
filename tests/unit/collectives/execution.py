"""Clusters for tests of collectives, and loads and times of patterns on idle links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustersim.collectives.pattern import Algorithm, Grouping, Pattern, grouping
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import FloatArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_fabric, make_node


def one_domain(n_ranks: int) -> Cluster:
    """Return so many accelerators at one switch: a rack, whose routes need no table of all pairs."""
    return nodes_of(1, n_ranks, nodes_per_domain=n_ranks)


def one_each(n_ranks: int) -> Cluster:
    """Return so many nodes of one accelerator at one switch; the adapters are the narrowest links."""
    return nodes_of(1, n_ranks)


def nodes_of(per_node: int, n_nodes: int, *, nodes_per_domain: int = 1, fabric: Fabric | None = None) -> Cluster:
    """Return nodes with an adapter for each accelerator, by default at one switch; all switches can add."""
    node = make_node(n_accelerators=per_node, n_nics=per_node, accelerators_per_pcie_switch=1, nodes_per_domain=nodes_per_domain)
    node = replace(node, scale_up=replace(node.scale_up, in_network_reduction=True))
    return build_cluster(node, n_nodes, replace(fabric or make_fabric("single_switch"), in_network_reduction=True))


def everybody(cluster: Cluster) -> Grouping:
    """Return one group of all ranks."""
    return grouping(cluster, np.arange(cluster.n_ranks, dtype=np.int64)[None])


def laid(algorithm: Algorithm, cluster: Cluster) -> Pattern:
    """Return what an algorithm does with all ranks."""
    return algorithm.lay(cluster, everybody(cluster))


def load_of(cluster: Cluster, pattern: Pattern) -> FloatArray:
    """Return what each link carries, for each byte of the tensor."""
    load = np.zeros(len(cluster.bandwidth_bytes_per_s))
    for phase in pattern.phases:
        for flow_set in phase:
            load[flow_set.route_set.link_ids] += flow_set.share * flow_set.route_set.flows
    return load


def load_by_name(cluster: Cluster, pattern: Pattern) -> dict[str, float]:
    """Return the links that carry anything, by name, and how much of each byte of the tensor."""
    load = load_of(cluster, pattern)
    return {cluster.links[int(link)].name: float(load[link]) for link in np.flatnonzero(load)}


def idle_s(cluster: Cluster, pattern: Pattern) -> float:
    """Return the time for each byte of the tensor on idle links without latency, where each phase is one flow set."""
    time_s = 0.0
    for phase in pattern.phases:
        assert len(phase) == 1
        route_set = phase[0].route_set
        time_s += phase[0].share * float((route_set.flows / cluster.bandwidth_bytes_per_s[route_set.link_ids]).max())
    return time_s


def injected(cluster: Cluster, pattern: Pattern) -> float:
    """Return what enters the network for each byte of the tensor: up to the switch of a domain, or out of an adapter."""
    load = load_of(cluster, pattern)
    return float(sum(load[link] for link in np.flatnonzero(load) if cluster.links[int(link)].name.endswith(("nvlink/up", "/tx"))))


def groups(cluster: Cluster, *members: tuple[int, ...]) -> Grouping:
    return grouping(cluster, np.array(members, dtype=np.int64))
