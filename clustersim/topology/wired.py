"""A cluster with all its wires: links as arrays, names and ends on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, Node
from clustersim.topology.cluster import TIERS, BoolArray, IntArray, Link, LinkFloats, LinkInts, Rotation, Routes
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.rotation import rotation_of
from clustersim.topology.routing import RouteRows, RoutingPolicy, between, compressed, down_from_leaf, own_leaf, up_to_leaf
from clustersim.topology.scale_out import ScaleOut


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cluster:
    """A cluster as directed links."""

    fabric: Fabric
    layout: ClusterLayout
    bandwidth_bytes_per_s: LinkFloats
    as_built_bytes_per_s: LinkFloats
    """The same before anything was slowed down."""
    latency_s: LinkFloats
    tier_index: LinkInts
    policy: RoutingPolicy
    """Rule for the choice among several paths."""
    works: BoolArray | None = None
    """Whether each link is up; None where all are. A link that is down keeps its bandwidth and is on no route."""
    shared: IntArray | None = None
    """The link whose capacity each link takes: itself, or the other direction of a half-duplex link. None without any such."""

    @property
    def kinds(self) -> tuple[tuple[Node, int], ...]:
        """Each kind of node and how many there are of it; nodes count in this order. A kind may stand there more than once."""
        return tuple((group.node, group.n_places) for group in self.layout.node_groups if group.node is not None)

    @property
    def node(self) -> Node:
        """The node that the cluster is made of; of several kinds the first."""
        return self.kinds[0][0]

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.layout.n_nodes

    @property
    def scale_out(self) -> ScaleOut | None:
        """The fabric between the places; None where one scale-up domain holds everything."""
        return self.layout.scale_out

    @property
    def n_ranks(self) -> int:
        """Number of accelerators; ranks count them node by node."""
        return self.layout.n_ranks

    @property
    def n_hosts(self) -> int:
        """Number of hosts: those of the nodes in order, then the dedicated servers."""
        return self.layout.n_hosts

    @property
    def n_domains(self) -> int:
        """Number of scale-up domains; the last of a kind may hold fewer nodes than the others."""
        return self.layout.n_domains

    @property
    def n_leaves(self) -> int:
        """Number of leaf switches; 0 without a fabric."""
        return self.scale_out.n_leaves if self.scale_out else 0

    @property
    def links(self) -> Sequence[Link]:
        """All links, by id, created on demand."""
        return LinkSequence(self)

    def node_of(self, ranks: IntArray) -> IntArray:
        """Return the node of each rank."""
        return self.layout.numbering.place_of_rank[self._checked(ranks)]

    def local_index_of(self, ranks: IntArray) -> IntArray:
        """Return the place of each rank in its node."""
        return ranks - self.layout.numbering.first_rank[self.node_of(ranks)]

    def node_at(self, place: int) -> Node:
        """Return what kind of node stands at a place."""
        return self.kinds[int(self.kind_of(np.array([place], dtype=np.int64))[0])][0]

    def kind_of(self, nodes: IntArray) -> IntArray:
        """Return the place in ``kinds`` of each node.

        Raises
        ------
        DomainError
            A node is outside the cluster.
        """
        outside = (nodes < 0) | (nodes >= self.n_nodes)
        if np.any(outside):
            raise DomainError(f"node {int(nodes[outside][0])} is outside the cluster", hint=f"its nodes are 0 to {self.n_nodes - 1}")
        return self.layout.numbering.group_of[nodes]

    def ranks_on(self, nodes: IntArray) -> IntArray:
        """Return the ranks of some nodes, node by node."""
        self.kind_of(nodes)
        numbering = self.layout.numbering
        counts = numbering.n_accelerators[nodes]
        before = np.cumsum(counts) - counts
        return np.repeat(numbering.first_rank[nodes] - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)

    def kind_of_link(self) -> IntArray:
        """Return the kind of node that each link belongs to, adapters included; -1 for those of the fabric and of servers."""
        layout, numbering = self.layout, self.layout.numbering
        kinds = np.full(layout.n_links, -1, dtype=np.int64)
        groups = numbering.group_of[: self.n_nodes]
        one_each = np.arange(self.n_nodes + 1, dtype=np.int64)
        for first_link, begins in (
            (0, numbering.first_wire),
            (layout.first_memory_link, one_each),
            (layout.first_storage_link, numbering.first_storage),
        ):
            here = slice(first_link, first_link + int(begins[self.n_nodes]))
            kinds[here] = np.repeat(groups, np.diff(begins[: self.n_nodes + 1]))
        return kinds

    def domain_of(self, ranks: IntArray) -> IntArray:
        """Return the scale-up domain of each rank."""
        return self.domain_of_host(self.node_of(ranks))

    def domain_of_host(self, hosts: IntArray) -> IntArray:
        """Return the scale-up domain of each host; a dedicated server has its own domain."""
        return self.layout.numbering.domain_of[self._checked_hosts(hosts)]

    def host_endpoint(self, hosts: IntArray) -> IntArray:
        """Return the endpoint of the memory of each host."""
        return self.n_ranks + self._checked_hosts(hosts)

    def memory_link(self, hosts: IntArray) -> IntArray:
        """Return the link whose capacity is the memory bandwidth of each host, reads and writes together; no route contains it."""
        return self.layout.first_memory_link + self.host_endpoint(hosts) - self.n_ranks

    def storage_links(self, hosts: IntArray) -> IntArray:
        """Return the links over which each host reads from its NVMe and writes to it: shape (n, 2); no route contains them.

        Raises
        ------
        DomainError
            A host is outside the cluster, or has no NVMe.
        """
        places = self.host_endpoint(hosts) - self.n_ranks
        first = self.layout.numbering.first_storage
        bare = places[first[places + 1] == first[places]]
        if len(bare):
            raise DomainError(f"{self.endpoint_name(self.n_ranks + int(bare[0]))} has no NVMe", hint="keep it in the memory of the host")
        return self.layout.first_storage_link + first[places][:, None] + np.arange(2, dtype=np.int64)

    def switch_ports(self, ranks: IntArray) -> IntArray:
        """Return the links of each rank to and from the switch of its scale-up domain: shape (n, 2).

        Raises
        ------
        DomainError
            The accelerators are joined without a switch, a link to or from it is down, or a rank is outside the cluster.
        """
        nodes, local = self.node_of(ranks), self.local_index_of(ranks)
        kinds = self.kind_of(nodes)
        link_ids = np.zeros((len(ranks), 2), dtype=np.int64)
        for kind, (node, _) in enumerate(self.kinds):
            own, wiring = np.flatnonzero(kinds == kind), self.layout.groups[kind].wiring
            if not len(own):
                continue
            if not wiring.ports:
                raise DomainError(
                    f"{node.name} joins its accelerators without a switch ({node.scale_up.kind})",
                    path=("cluster", "kinds", kind, "scale_up", "kind"),
                    hint="choose a node with scale-up of kind nvswitch",
                )
            link_ids[own] = np.array(wiring.ports, dtype=np.int64)[local[own]] + self.layout.first_wire(nodes[own])[:, None]
        if self.works is not None and not self.works[link_ids].all():
            name = self.link_name(int(np.setdiff1d(link_ids, np.flatnonzero(self.works))[0]))
            raise DomainError(f"{name} is down", path=("cluster", "changes"), hint="choose an algorithm without the switch")
        return link_ids if self.shared is None else self.shared[link_ids]

    def leaf_of(self, ranks: IntArray) -> IntArray:
        """Return the leaf of the adapter of each rank."""
        return own_leaf(self.layout, self._between_nodes(), self._checked(ranks))

    def to_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from each rank to its leaf."""
        self._between_nodes()
        return self._compressed(up_to_leaf(self.layout, self._checked(ranks)), ranks, None)

    def from_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from its leaf to each rank."""
        self._between_nodes()
        return self._compressed(down_from_leaf(self.layout, self._checked(ranks)), None, ranks)

    def routes(self, sources: IntArray, destinations: IntArray) -> Routes:
        """Return the route from each source to the destination at the same place; from an endpoint to itself it is empty.

        Parameters
        ----------
        sources, destinations
            Endpoints: ranks, or what ``host_endpoint`` gives for hosts.

        Raises
        ------
        DomainError
            An endpoint is outside the cluster, or no way leads from one to the other.
        """
        if sources.shape != destinations.shape:
            raise DomainError(f"{len(sources)} sources do not match {len(destinations)} destinations")
        n_endpoints = self.n_ranks + self.n_hosts
        for ends in (sources, destinations):
            outside = (ends < 0) | (ends >= n_endpoints)
            if np.any(outside):
                hint = f"its ranks are 0 to {self.n_ranks - 1}, the memories of its hosts {self.n_ranks} to {n_endpoints - 1}"
                raise DomainError(f"rank {int(ends[outside][0])} is outside the cluster", hint=hint)
        rows = between(self.layout, self.policy, sources, destinations)
        return self._compressed(rows, sources, destinations)

    def rotation(self, step: int) -> Rotation | None:
        """Return the rotation of all nodes by a number of accelerators; None where it is no symmetry of the cluster, or is switched off.

        Paths that are picked by hash, links that are down, and links that share their capacity rule it out.
        """
        if self.policy.seed is not None or self.policy.left_fraction is not None or self.works is not None or self.shared is not None:
            return None
        kinds = {id(each.kinds): each.kinds for each in (self.bandwidth_bytes_per_s, self.latency_s, self.tier_index)}
        return rotation_of(self.layout, tuple(kinds.values()), step)

    def endpoint_name(self, endpoint: int) -> str:
        """Return how people call an endpoint: ``rank 5``, ``the host of node 3`` or ``server 1``."""
        if endpoint < self.n_ranks:
            return f"rank {endpoint}"
        host = endpoint - self.n_ranks
        return f"the host of node {host}" if host < self.n_nodes else f"server {host - self.n_nodes}"

    def ends(self, link_id: int) -> tuple[str, str]:
        """Return the names of the two ends of a link."""
        return self.layout.ends(link_id)

    def link_name(self, link_id: int) -> str:
        """Return a link's name, such as ``node3/gpu2/nvlink/up``, ``node3/nic5/tx``, ``leaf2/up`` or ``node0/memory``."""
        return self.layout.link_name(link_id)

    def _between_nodes(self) -> ScaleOut:
        if self.scale_out is None:
            raise DomainError(
                f"nothing is laid between {self.n_nodes} node(s) that one scale-up domain holds",
                path=("cluster", "n_nodes"),
                hint=f"use more than {self.node.scale_up.nodes_per_domain}",
            )
        return self.scale_out

    def _checked(self, ranks: IntArray) -> IntArray:
        outside = (ranks < 0) | (ranks >= self.n_ranks)
        if np.any(outside):
            rank = int(ranks[outside][0])
            raise DomainError(f"rank {rank} is outside the cluster", hint=f"its ranks are 0 to {self.n_ranks - 1}")
        return ranks

    def _checked_hosts(self, hosts: IntArray) -> IntArray:
        outside = (hosts < 0) | (hosts >= self.n_hosts)
        if np.any(outside):
            raise DomainError(f"host {int(hosts[outside][0])} is outside the cluster", hint=f"its hosts are 0 to {self.n_hosts - 1}")
        return hosts

    def _compressed(self, rows: RouteRows, sources: IntArray | None, destinations: IntArray | None) -> Routes:
        lost = np.flatnonzero(~rows.reached)
        if len(lost):
            source, destination = (
                "its leaf" if ends is None else self.endpoint_name(int(ends[lost[0]])) for ends in (sources, destinations)
            )
            raise DomainError(f"no way leads from {source} to {destination}", path=("cluster",), hint="links that are down cut it off")
        routes = compressed(rows, self.latency_s)
        return routes if self.shared is None else replace(routes, link_ids=self.shared[routes.link_ids])


class LinkSequence(Sequence[Link]):
    """The links of a cluster, created on demand: a large cluster has hundreds of thousands."""

    def __init__(self, cluster: Cluster) -> None:
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
