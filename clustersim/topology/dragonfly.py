"""A dragonfly: groups of routers that are all joined, and links from every group to every other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import TIERS, IntArray
from clustersim.topology.direct_links import RouterFabric, RouterGraph, with_detours
from clustersim.topology.scale_out import Below, RouteRows, RoutingState, ScaleOut, hop_latency_s, left_fraction, narrowest, shares


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dragonfly(RouterFabric):
    """Routers in groups.

    Links count by router and its peers in the group; then by group, by how many groups further the other is, and by which of
    the links between the two. Global port p of a group is at router ``p // global_links``; the links to the group that is
    d + 1 further are at the ports from ``d * per_pair`` on.

    References
    ----------
    .. [1] J. Kim, W. Dally, S. Scott and D. Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008.
    """

    n_groups: int
    per_group: int
    """Routers in one group."""
    global_links: int
    """Global links of one router."""
    per_pair: int
    """Links from each group to each other."""
    nodes_per_router: int

    @property
    def n_local_links(self) -> int:
        """Number of links inside groups."""
        return self.n_leaves * (self.per_group - 1)

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the router of each adapter; all adapters of a node share one."""
        return places // self.nodes_per_router + 0 * adapters

    def leaf_name(self, leaf: int) -> str:
        """Return the name of a router, such as ``group0/router3``."""
        group, router = divmod(leaf, self.per_group)
        return f"group{group}/router{router}"

    def link_name(self, link: int) -> str:
        """Return the name of a link, such as ``group0/router3/to1`` or ``group0/router3/global0``."""
        tail = self.leaf_name(int(self.graph.tails[link]))
        if link < self.n_local_links:
            return f"{tail}/to{self.graph.heads[link] % self.per_group}"
        port = (link - self.n_local_links) % ((self.n_groups - 1) * self.per_pair)
        return f"{tail}/global{port % self.global_links}"

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return minimal paths: a link inside a group, or one link between groups and up to one inside each.

        Of the paths over the links between two groups those with the fewest links are taken; traffic is spread over them in
        proportion to what is left of them, or hashed to one.
        """
        left = left_fraction(condition, len(self.tier_index))
        n_pairs = len(sources)
        paths = self._paths(sources, destinations)
        used = paths >= 0
        usable = narrowest(paths, left)
        hops = np.where(usable > 0.0, np.asarray(used.sum(axis=2), dtype=np.int64), 4)
        share = shares(np.where(hops == hops.min(axis=1)[:, None], usable, 0.0), condition.keys, 0)
        paths[share == 0.0] = -1
        ways = RouteRows(
            link_ids=paths.reshape(n_pairs, -1),
            weights=np.repeat(share, paths.shape[2], axis=1),
            reached=np.logical_or(sources == destinations, np.any(share > 0.0, axis=1)),
        )
        return with_detours(ways, self.graph, sources, destinations, left > 0.0)

    def _paths(self, sources: IntArray, destinations: IntArray) -> IntArray:
        """Return the candidates of each pair: shape (n_pairs, n_paths, 3) with a link inside, one between groups, one inside."""
        here, there = sources // self.per_group, destinations // self.per_group
        paths = np.full((len(sources), max(1, self.per_pair), 3), -1, dtype=np.int64)
        near = np.flatnonzero((here == there) & (sources != destinations))
        paths[near, 0, 0] = self._local(sources[near], destinations[near])
        far = np.flatnonzero(here != there)
        if len(far):
            group, peer = here[far], there[far]
            further = (peer - group - 1) % self.n_groups
            number = np.arange(self.per_pair, dtype=np.int64)
            leaves = group[:, None] * self.per_group + (further[:, None] * self.per_pair + number) // self.global_links
            back = self.n_groups - 2 - further
            enters = peer[:, None] * self.per_group + (back[:, None] * self.per_pair + number) // self.global_links
            across = ((group * (self.n_groups - 1) + further) * self.per_pair)[:, None] + number
            source, destination = sources[far][:, None], destinations[far][:, None]
            paths[far, :, 0] = np.where(leaves == source, -1, self._local(source, leaves))
            paths[far, :, 1] = self.n_local_links + across
            paths[far, :, 2] = np.where(enters == destination, -1, self._local(enters, destination))
        return paths

    def _local(self, tails: IntArray, heads: IntArray) -> IntArray:
        peer = heads % self.per_group
        return tails * (self.per_group - 1) + peer - (peer > tails % self.per_group)


def dragonfly(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a dragonfly of full groups: routers are bought for the whole group, also where nodes fill only some.

    A link is as wide as a port of the leaf switch, unless the fabric says how wide one is. Each group has the same number of
    links to each other; ports that are left over stay empty.

    Raises
    ------
    DomainError
        The groups are not described, or have too few links to reach all others.
    """
    for name, count in (("leaves_per_group", fabric.leaves_per_group), ("global_links", fabric.global_links)):
        if count < 1:
            hint = "give the routers of a group, and the links of each router to other groups"
            raise DomainError("a dragonfly stands in groups that are joined", path=("fabric", name), hint=hint)
    per_group, global_links = fabric.leaves_per_group, fabric.global_links
    n_groups = -(-below.n_places // (fabric.nodes_per_leaf * per_group))
    per_pair = per_group * global_links // (n_groups - 1) if n_groups > 1 else 0
    if n_groups > 1 and per_pair < 1:
        raise DomainError(
            f"{n_groups} groups need {n_groups - 1} links each to reach all others, and have {per_group * global_links}",
            path=("fabric", "global_links"),
            hint=f"use {-(-(n_groups - 1) // per_group)} or more, or larger groups",
        )
    local = _local_wires(n_groups, per_group)
    between = _global_wires(n_groups, per_group, global_links, per_pair)
    counts = [len(local[0]), len(between[0])]
    link_bytes_per_s = fabric.link_bandwidth_bytes_per_s or fabric.leaf.port_bandwidth_bytes_per_s
    return Dragonfly(
        n_groups=n_groups,
        per_group=per_group,
        global_links=global_links,
        per_pair=per_pair,
        nodes_per_router=fabric.nodes_per_leaf,
        n_leaves=n_groups * per_group,
        graph=RouterGraph(
            n_routers=n_groups * per_group,
            tails=np.concatenate((local[0], between[0])),
            heads=np.concatenate((local[1], between[1])),
        ),
        bandwidth_bytes_per_s=np.full(sum(counts), link_bytes_per_s),
        latency_s=np.full(sum(counts), hop_latency_s(fabric.leaf, fabric.leaf, fabric.cable_latency_s)),
        tier_index=np.repeat(np.array([TIERS.index("leaf"), TIERS.index("spine")], dtype=np.int64), counts),
    )


def _local_wires(n_groups: int, per_group: int) -> tuple[IntArray, IntArray]:
    routers = np.arange(n_groups * per_group, dtype=np.int64)
    slots = np.arange(per_group - 1, dtype=np.int64)
    own = (routers % per_group)[:, None]
    heads = (routers - routers % per_group)[:, None] + slots + (slots >= own)
    return np.repeat(routers, per_group - 1), heads.reshape(-1)


def _global_wires(n_groups: int, per_group: int, global_links: int, per_pair: int) -> tuple[IntArray, IntArray]:
    shape = n_groups, max(0, n_groups - 1), per_pair
    group, further, number = (axis.reshape(-1).astype(np.int64) for axis in np.indices(shape))
    peer, back = (group + 1 + further) % n_groups, n_groups - 2 - further
    tails = group * per_group + (further * per_pair + number) // global_links
    return tails, peer * per_group + (back * per_pair + number) // global_links
