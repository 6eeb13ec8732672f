"""A cluster with all its wires laid: links as arrays, names and ends on demand, routes by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, Node
from clustersim.topology.cluster import TIERS, FloatArray, IntArray, Link, Routes
from clustersim.topology.fabrics import FabricTree
from clustersim.topology.node_wiring import NodeWiring


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WiredCluster:
    """A cluster as directed links.

    Link ids count the wires of node 0, of node 1 and so on; then up and down of each leaf, where there is more than
    one leaf; then up and down of each pod, where there is more than one pod. A link that no route could use is not laid.
    """

    node: Node
    fabric: Fabric
    n_nodes: int
    wiring: NodeWiring
    tree: FabricTree | None
    """None where one scale-up domain holds all nodes, so that nothing needs the fabric."""
    bandwidth_bytes_per_s: FloatArray
    latency_s: FloatArray
    tier_index: IntArray

    @property
    def n_ranks(self) -> int:
        """Number of accelerators; ranks count them node by node."""
        return self.n_nodes * self.node.n_accelerators

    @property
    def n_domains(self) -> int:
        """Number of scale-up domains; the last may hold fewer nodes than the others."""
        return -(-self.n_nodes // self.node.scale_up.nodes_per_domain)

    @property
    def links(self) -> Sequence[Link]:
        """All links, by id; each is made when it is asked for."""
        return LinkSequence(self)

    def node_of(self, ranks: IntArray) -> IntArray:
        """Return the node of each rank."""
        return self._checked(ranks) // self.node.n_accelerators

    def local_index_of(self, ranks: IntArray) -> IntArray:
        """Return the place of each rank in its node."""
        return self._checked(ranks) % self.node.n_accelerators

    def domain_of(self, ranks: IntArray) -> IntArray:
        """Return the scale-up domain of each rank."""
        return self.node_of(ranks) // self.node.scale_up.nodes_per_domain

    def nic_of(self, ranks: IntArray) -> IntArray:
        """Return the adapter of each rank; adapters count through the cluster, node by node.

        Raises
        ------
        ScenarioError
            A rank is outside the cluster, or its nodes have no adapters.
        """
        if self.wiring.n_adapters == 0:
            raise ScenarioError(f"{self.node.name} has no network adapters", field="cluster.nics", hint="give it one or more")
        return self.node_of(ranks) * self.wiring.n_adapters + self.wiring.adapter_of[self.local_index_of(ranks)]

    def routes(self, sources: IntArray, destinations: IntArray) -> Routes:
        """Return the route from each source to the destination at the same place; from a rank to itself it is empty.

        Raises
        ------
        ScenarioError
            A rank is outside the cluster.
        """
        if sources.shape != destinations.shape:
            raise ScenarioError(f"{len(sources)} sources do not match {len(destinations)} destinations")
        rows = self._rows(self._checked(sources), self._checked(destinations))
        used = rows >= 0
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(used.sum(axis=1), out=starts[1:])
        link_ids = rows[used]
        latency_s = np.where(used, self.latency_s[rows], 0.0).sum(axis=1)
        return Routes(starts=starts, link_ids=link_ids, weights=np.ones(len(link_ids)), latency_s=latency_s)

    def ends(self, link_id: int) -> tuple[str, str]:
        """Return the names of what a link leads from and to."""
        n_wires, tree = len(self.wiring.wires), self.tree
        if link_id < n_wires * self.n_nodes:
            node, wire = divmod(link_id, n_wires)
            places = {"node": node, "domain": node // self.node.scale_up.nodes_per_domain, "leaves": self._leaves_of_node(node)}
            return self.wiring.wires[wire].tail.format(**places), self.wiring.wires[wire].head.format(**places)
        assert tree is not None  # only a fabric has links beyond the nodes
        bundle, down = divmod(link_id - n_wires * self.n_nodes, 2)
        if bundle < tree.n_leaves:
            low, high = f"leaf{bundle}", f"pod{bundle // tree.leaves_per_pod}/spines"
        else:
            low, high = f"pod{bundle - tree.n_leaves}/spines", "core"
        return (high, low) if down else (low, high)

    def link_name(self, link_id: int) -> str:
        """Return a link's name, such as ``node3/gpu2/nvlink/up``, ``node3/nic5/tx`` or ``leaf2/up``."""
        n_wires, tree = len(self.wiring.wires), self.tree
        if link_id < n_wires * self.n_nodes:
            node, wire = divmod(link_id, n_wires)
            return f"node{node}/{self.wiring.wires[wire].name}"
        assert tree is not None  # only a fabric has links beyond the nodes
        bundle, down = divmod(link_id - n_wires * self.n_nodes, 2)
        place = f"leaf{bundle}" if bundle < tree.n_leaves else f"pod{bundle - tree.n_leaves}"
        return f"{place}/{'down' if down else 'up'}"

    def leaf_up(self, leaves: IntArray) -> IntArray:
        """Return the id of the link from each leaf to its spines; the id after it leads down."""
        return self.n_nodes * len(self.wiring.wires) + 2 * leaves

    def pod_up(self, pods: IntArray) -> IntArray:
        """Return the id of the link from the spines of each pod to the core; the id after it leads down."""
        n_leaves = self.tree.n_leaves if self.tree else 0
        return self.n_nodes * len(self.wiring.wires) + 2 * n_leaves + 2 * pods

    def _leaves_of_node(self, node: int) -> list[int]:
        if self.tree is None:
            return []
        adapters = np.arange(self.wiring.n_adapters, dtype=np.int64)
        return [int(leaf) for leaf in self.tree.leaf_of(np.full_like(adapters, node), adapters)]

    def _checked(self, ranks: IntArray) -> IntArray:
        outside = (ranks < 0) | (ranks >= self.n_ranks)
        if np.any(outside):
            rank = int(ranks[outside][0])
            raise ScenarioError(f"rank {rank} is outside the cluster", hint=f"its ranks are 0 to {self.n_ranks - 1}")
        return ranks

    def _rows(self, sources: IntArray, destinations: IntArray) -> IntArray:
        """Return the link ids of each pair in order, one row each, with -1 where there is none."""
        n_local, n_wires, wiring = self.node.n_accelerators, len(self.wiring.wires), self.wiring
        source_node, source = np.divmod(sources, n_local)
        node, destination = np.divmod(destinations, n_local)
        per_domain = self.node.scale_up.nodes_per_domain
        same_domain = source_node // per_domain == node // per_domain
        n_out, n_in = wiring.outward.shape[1], wiring.inward.shape[1]
        rows = np.full((len(sources), max(2, wiring.inside.shape[1], n_out + 4 + n_in)), -1, dtype=np.int64)

        near = np.flatnonzero(source_node == node)
        table = wiring.inside[source[near] * n_local + destination[near]]
        rows[near, : table.shape[1]] = _shifted(table, node[near] * n_wires)

        over = np.flatnonzero(same_domain & (source_node != node))
        if len(over):
            rows[over, 0] = wiring.ports[source[over], 0] + source_node[over] * n_wires
            rows[over, 1] = wiring.ports[destination[over], 1] + node[over] * n_wires

        far = np.flatnonzero(~same_domain)
        if len(far):
            source_node, source, node, destination = source_node[far], source[far], node[far], destination[far]
            rows[far, :n_out] = _shifted(wiring.outward[source], source_node * n_wires)
            rows[far, n_out : n_out + 4] = self._climb(source_node, source, node, destination)
            rows[far, n_out + 4 : n_out + 4 + n_in] = _shifted(wiring.inward[destination], node * n_wires)
        return rows

    def _climb(self, source_node: IntArray, source: IntArray, node: IntArray, destination: IntArray) -> IntArray:
        """Return leaf up, pod up, pod down and leaf down of each pair, as far as it climbs."""
        assert self.tree is not None  # pairs of two domains imply a fabric
        adapter_of = self.wiring.adapter_of
        source_leaf = self.tree.leaf_of(source_node, adapter_of[source])
        leaf = self.tree.leaf_of(node, adapter_of[destination])
        source_pod, pod = self.tree.pod_of(source_leaf), self.tree.pod_of(leaf)
        climbed = np.stack((self.leaf_up(source_leaf), self.pod_up(source_pod), self.pod_up(pod) + 1, self.leaf_up(leaf) + 1), axis=1)
        climbed[source_leaf == leaf] = -1
        climbed[source_pod == pod, 1:3] = -1
        return climbed


class LinkSequence(Sequence[Link]):
    """The links of a cluster, each made when it is asked for: a large cluster has hundreds of thousands."""

    def __init__(self, cluster: WiredCluster) -> None:
        self._cluster = cluster

    def __len__(self) -> int:
        return len(self._cluster.bandwidth_bytes_per_s)

    @overload
    def __getitem__(self, index: int) -> Link: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Link]: ...
    def __getitem__(self, index: int | slice) -> Link | Sequence[Link]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        link_id = range(len(self))[index]
        cluster = self._cluster
        return Link(
            name=cluster.link_name(link_id),
            tier=TIERS[int(cluster.tier_index[link_id])],
            bandwidth_bytes_per_s=float(cluster.bandwidth_bytes_per_s[link_id]),
            latency_s=float(cluster.latency_s[link_id]),
        )


def _shifted(table: IntArray, offsets: IntArray) -> IntArray:
    return np.where(table >= 0, table + offsets[:, None], -1)
