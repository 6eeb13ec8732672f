"""A cluster with all its wires: links as arrays, names and ends on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, Node
from clustersim.topology.cluster import TIERS, BoolArray, IntArray, Link, LinkFloats, LinkInts, Rotation, Routes
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.node_wiring import PathTable
from clustersim.topology.routing import RouteRows, RoutingPolicy, between, compressed, own_leaf, to_own_leaf
from clustersim.topology.scale_out import ScaleOut
from clustersim.topology.trees import BundledTree


def rotation_of(layout: ClusterLayout, kinds: Sequence[NDArray[np.int32]], step: int) -> Rotation | None:
    """Return the rotation by a number of accelerators; None where routes between ranks or link properties change with it.

    Only nodes of one kind that all have links of the same values, without dedicated servers, and joined by one domain or by bundles of
    cables, are looked at.

    Parameters
    ----------
    kinds
        Of each link; several where links are of kinds in several respects.
    """
    group, scale_out = layout.groups[0], layout.scale_out
    per_node, n_rotations = group.n_accelerators, group.n_accelerators // step
    if len(layout.groups) > 1 or len(layout.tables.adapter_of) > 1 or per_node % step or n_rotations == 1:
        return None
    rotated = (np.arange(per_node, dtype=np.int64) + step) % per_node
    n_wires, end = len(group.wiring.wires), layout.first_fabric_link
    wires = _lowest(*_moved_wires(layout, rotated), size=n_wires, n_rotations=n_rotations)
    if wires is None or any(bool((of_links[:end].reshape(-1, n_wires) != of_links[wires[0]]).any()) for of_links in kinds):
        return None
    lowest_link, n_alike = np.empty(layout.n_links, dtype=np.int32), np.ones(layout.n_links, dtype=np.int8)
    np.add(layout.numbering.first_wire[:-1, None], wires[0], out=lowest_link[:end].reshape(-1, n_wires), casting="same_kind")
    lowest_link[end:] = np.arange(end, layout.n_links)
    n_alike[:end].reshape(-1, n_wires)[:] = wires[1]
    if scale_out is not None:
        if not isinstance(scale_out, BundledTree) or not layout.numbering.all_have(layout.n_rails):
            return None
        fabric = _lowest_in_fabric(scale_out, layout.tables.adapter_of[0, :per_node], rotated, n_rotations=n_rotations)
        if fabric is None:
            return None
        between = slice(end, layout.first_memory_link)
        if any(bool((of_links[between][fabric[0]] != of_links[between]).any()) for of_links in kinds):
            return None
        lowest_link[between], n_alike[between] = end + fabric[0], fabric[1]
    firsts = layout.numbering.first_rank[:-1, None]
    return Rotation(
        n_rotations=n_rotations,
        per_node=per_node,
        rotated_rank=(firsts + rotated).reshape(-1),
        lowest_rank=(firsts + np.arange(per_node, dtype=np.int64) % step).reshape(-1),
        lowest_link=lowest_link,
        n_alike=n_alike,
    )


def _moved_wires(layout: ClusterLayout, rotated: IntArray) -> tuple[IntArray, IntArray]:
    """Return the wires of a node on all routes between ranks, and those on the routes between rotated ranks."""
    tables, here = layout.tables, np.arange(len(rotated), dtype=np.int64)
    adapters = tables.adapter_of[0, : len(rotated)]
    ways: list[tuple[PathTable, IntArray, IntArray]] = [(tables.inside, np.repeat(here, len(here)), np.tile(here, len(here)))]
    if layout.scale_out is not None:
        ways += [(tables.outward, here, adapters), (tables.inward, here, adapters)]
    if layout.groups[0].wiring.ports:
        ways += [(tables.to_switch, here, here), (tables.from_switch, here, here)]
    before: list[IntArray] = []
    after: list[IntArray] = []
    for table, rows, columns in ways:
        peers = adapters[rotated[rows]] if table in (tables.outward, tables.inward) else rotated[columns]
        before.append(table.wires[0, rows, columns].reshape(-1))
        after.append(table.wires[0, rotated[rows], peers].reshape(-1))
    return np.concatenate(before), np.concatenate(after)


def _lowest_in_fabric(tree: BundledTree, rails: IntArray, rotated: IntArray, *, n_rotations: int) -> tuple[IntArray, IntArray] | None:
    """Return the lowest equivalent link of each link of a tree, and their number; None where a rotation leads to other pods."""
    leaves = tree.leaves
    own = leaves.leaf_of(np.zeros_like(rails), rails)
    found = _lowest(own, own[rotated], size=leaves.leaves_per_unit, n_rotations=n_rotations)
    if found is None:
        return None
    numbers = np.arange(leaves.n_leaves, dtype=np.int64)
    within = numbers % leaves.leaves_per_unit
    lowest = numbers - within + found[0][within]
    if (leaves.pod_of(lowest) != leaves.pod_of(numbers)).any():
        return None
    links, n_alike = np.arange(len(tree.tier_index), dtype=np.int64), np.ones(len(tree.tier_index), dtype=np.int64)
    if leaves.n_leaves > 1:
        both = slice(0, 2 * leaves.n_leaves)
        links[both] = np.repeat(2 * lowest, 2) + np.tile(np.arange(2), leaves.n_leaves)
        n_alike[both] = np.repeat(found[1][within], 2)
    return links, n_alike


def _lowest(before: IntArray, after: IntArray, *, size: int, n_rotations: int) -> tuple[IntArray, IntArray] | None:
    """Return the lowest of the things that take the place of each, and how many do.

    None where what takes the place of a thing depends on the way that it is on, or where it comes back after some of the rotations.

    Parameters
    ----------
    before, after
        Things on ways, and those on the same ways after the rotation; -1 where a way is over. What is on none stays where it is.
    size
        Number of things.
    """
    numbers = np.arange(size, dtype=np.int64)
    places = numbers.copy()
    if ((before < 0) != (after < 0)).any():
        return None
    used = before >= 0
    places[before[used]] = after[used]
    if (places[before[used]] != after[used]).any() or (np.bincount(places, minlength=size) != 1).any():
        return None
    moves = places != numbers
    lowest, image = numbers.copy(), places
    for _ in range(n_rotations - 1):
        if (image[moves] == numbers[moves]).any():
            return None
        lowest, image = np.minimum(lowest, image), places[image]
    if (image != numbers).any():
        return None
    return lowest, np.where(moves, n_rotations, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cluster(ClusterLayout):
    """A cluster as directed links: its layout, and what its links can do."""

    fabric: Fabric
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
    changed_links: tuple[IntArray, ...] = ()

    @property
    def kinds(self) -> tuple[tuple[Node, int], ...]:
        """Each kind of node and how many there are of it; nodes count in this order. A kind may stand there more than once."""
        return tuple((group.node, group.n_places) for group in self.node_groups if group.node is not None)

    @property
    def node(self) -> Node:
        """The node that the cluster is made of; of several kinds the first."""
        return self.kinds[0][0]

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
        return self.numbering.place_of_rank[self._checked(ranks)]

    def local_index_of(self, ranks: IntArray) -> IntArray:
        """Return the place of each rank in its node."""
        return ranks - self.numbering.first_rank[self.node_of(ranks)]

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
        return self.numbering.group_of[nodes]

    def ranks_on(self, nodes: IntArray) -> IntArray:
        """Return the ranks of some nodes, node by node."""
        self.kind_of(nodes)
        numbering = self.numbering
        counts = numbering.n_accelerators[nodes]
        before = np.cumsum(counts) - counts
        return np.repeat(numbering.first_rank[nodes] - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)

    def kind_of_link(self) -> IntArray:
        """Return the kind of node that each link belongs to, adapters included; -1 for those of the fabric and of servers."""
        numbering = self.numbering
        kinds = np.full(self.n_links, -1, dtype=np.int64)
        groups = numbering.group_of[: self.n_nodes]
        one_each = np.arange(self.n_nodes + 1, dtype=np.int64)
        for first_link, begins in (
            (0, numbering.first_wire),
            (self.first_memory_link, one_each),
            (self.first_storage_link, numbering.first_storage),
        ):
            here = slice(first_link, first_link + int(begins[self.n_nodes]))
            kinds[here] = np.repeat(groups, np.diff(begins[: self.n_nodes + 1]))
        return kinds

    def domain_of(self, ranks: IntArray) -> IntArray:
        """Return the scale-up domain of each rank."""
        return self.domain_of_host(self.node_of(ranks))

    def domain_of_host(self, hosts: IntArray) -> IntArray:
        """Return the scale-up domain of each host; a dedicated server has its own domain."""
        return self.numbering.domain_of[self._checked_hosts(hosts)]

    def host_endpoint(self, hosts: IntArray) -> IntArray:
        """Return the endpoint of the memory of each host."""
        return self.n_ranks + self._checked_hosts(hosts)

    def memory_link(self, hosts: IntArray) -> IntArray:
        """Return the link whose capacity is the memory bandwidth of each host, reads and writes together; no route contains it."""
        return self.first_memory_link + self.host_endpoint(hosts) - self.n_ranks

    def storage_links(self, hosts: IntArray) -> IntArray:
        """Return the links over which each host reads from its NVMe and writes to it: shape (n, 2); no route contains them.

        Raises
        ------
        DomainError
            A host is outside the cluster, or has no NVMe.
        """
        places = self.host_endpoint(hosts) - self.n_ranks
        first = self.numbering.first_storage
        bare = places[first[places + 1] == first[places]]
        if len(bare):
            raise DomainError(f"{self.endpoint_name(self.n_ranks + int(bare[0]))} has no NVMe", hint="keep it in the memory of the host")
        return self.first_storage_link + first[places][:, None] + np.arange(2, dtype=np.int64)

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
            own, wiring = np.flatnonzero(kinds == kind), self.groups[kind].wiring
            if not len(own):
                continue
            if not wiring.ports:
                raise DomainError(
                    f"{node.name} joins its accelerators without a switch ({node.scale_up.kind})",
                    path=("cluster", "kinds", kind, "scale_up", "kind"),
                    hint="choose a node with scale-up of kind nvswitch",
                )
            link_ids[own] = np.array(wiring.ports, dtype=np.int64)[local[own]] + self.numbering.first_wire[nodes[own]][:, None]
        if self.works is not None and not self.works[link_ids].all():
            name = self.link_name(int(np.setdiff1d(link_ids, np.flatnonzero(self.works))[0]))
            raise DomainError(f"{name} is down", path=("cluster", "changes"), hint="choose an algorithm without the switch")
        return link_ids if self.shared is None else self.shared[link_ids]

    def leaf_of(self, ranks: IntArray) -> IntArray:
        """Return the leaf of the adapter of each rank."""
        return own_leaf(self, self._between_nodes(), self._checked(ranks))

    def to_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from each rank to its leaf."""
        self._between_nodes()
        return self._compressed(to_own_leaf(self, self._checked(ranks), back=False), ranks, None)

    def from_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from its leaf to each rank."""
        self._between_nodes()
        return self._compressed(to_own_leaf(self, self._checked(ranks), back=True), None, ranks)

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
        rows = between(self, self.policy, sources, destinations)
        return self._compressed(rows, sources, destinations)

    def rotation(self, step: int) -> Rotation | None:
        """Return the rotation of all nodes by a number of accelerators; None where it is no symmetry of the cluster, or is switched off.

        Paths that are picked by hash, links that are down, and links that share their capacity rule it out.
        """
        if self.policy.seed is not None or self.policy.left_fraction is not None or self.works is not None or self.shared is not None:
            return None
        kinds = {id(each.kinds): each.kinds for each in (self.bandwidth_bytes_per_s, self.latency_s, self.tier_index)}
        return rotation_of(self, tuple(kinds.values()), step)

    def endpoint_name(self, endpoint: int) -> str:
        """Return how people call an endpoint: ``rank 5``, ``the host of node 3`` or ``server 1``."""
        if endpoint < self.n_ranks:
            return f"rank {endpoint}"
        host = endpoint - self.n_ranks
        return f"the host of node {host}" if host < self.n_nodes else f"server {host - self.n_nodes}"

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
