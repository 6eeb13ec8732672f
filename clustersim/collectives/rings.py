"""Rings over the members of a group, as a communication library lays them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.topology.cluster import Cluster, IntArray, Routes
from clustersim.topology.load import Footprint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rings:
    """All rings of all groups of an orbit, by the links they cross.

    A group with g members in every domain gets g rings. Each visits the domains in order, and within a domain starts with
    another member; so every member's adapter carries one ring in and out, and data enter and leave a server by all its adapters.
    """

    footprint: Footprint
    n_rings: int
    """Rings of one group."""
    group_size: int
    n_domains: int
    """Most domains that a group spans."""
    uniform: bool
    """False where groups of the orbit, or domains of a group, differ in their number of members."""
    intra_latency_s: float
    """Longest way along the wires of an edge inside a domain; 0 without any."""
    inter_latency_s: float
    """The same of an edge between domains."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Point-to-point flows, one a pair, by the links they cross."""

    footprint: Footprint
    inside: bool
    """True where no pair leaves its domain."""
    latency_s: float
    """Longest way along the wires."""
    uniform: bool
    """False where pairs differ in the number of links they cross."""


def lay_pairs(cluster: Cluster, sources: IntArray, destinations: IntArray) -> Pairs:
    """Return flows from each source to the destination at the same place."""
    routes = cluster.routes(sources, destinations)
    n_links = np.diff(routes.starts)
    return Pairs(
        footprint=_footprint(cluster, routes),
        inside=bool((cluster.domain_of(sources) == cluster.domain_of(destinations)).all()),
        latency_s=float(routes.latency_s.max()),
        uniform=bool((n_links == n_links[0]).all()),
    )


def _footprint(cluster: Cluster, routes: Routes) -> Footprint:
    flows = np.bincount(routes.link_ids, weights=routes.weights, minlength=len(cluster.bandwidth_bytes_per_s)).astype(np.float64)
    link_ids = np.flatnonzero(flows)
    return Footprint(link_ids=link_ids, flows=flows[link_ids])


def lay_rings(cluster: Cluster, members: IntArray) -> Rings:
    """Return the rings of an orbit of groups.

    Parameters
    ----------
    members
        Shape (n_groups, group_size): global ranks.

    Notes
    -----
    Where a ring crosses to the next domain, it leaves and enters by the adapter of the member that it starts with, as NCCL
    does on a rail-optimised fabric: the last accelerator of the domain hands over inside the server. Groups that do not lie
    evenly in their domains get one ring.
    """
    ordered = np.sort(members, axis=1)
    n_groups, size = ordered.shape
    domains = cluster.domain_of(ordered.reshape(-1)).reshape(ordered.shape)
    spans = (np.diff(domains, axis=1) != 0).sum(axis=1) + 1
    n_domains = int(spans.max())
    share, rest = divmod(size, n_domains)
    uniform = rest == 0 and bool((spans == n_domains).all())
    if uniform:
        blocks = domains.reshape(n_groups, n_domains, share)
        uniform = bool((blocks == blocks[:, :, :1]).all())
    edges = _even_edges(ordered.reshape(n_groups, n_domains, share)) if uniform else (ordered, np.roll(ordered, -1, axis=1))
    sources, destinations = edges[0].reshape(-1), edges[1].reshape(-1)
    routes = cluster.routes(sources, destinations)
    leaves = cluster.domain_of(sources) != cluster.domain_of(destinations)
    return Rings(
        footprint=_footprint(cluster, routes),
        n_rings=share if uniform else 1,
        group_size=size,
        n_domains=n_domains,
        uniform=uniform,
        intra_latency_s=float(routes.latency_s[~leaves].max(initial=0.0)),
        inter_latency_s=float(routes.latency_s[leaves].max(initial=0.0)),
    )


def _even_edges(blocks: IntArray) -> tuple[IntArray, IntArray]:
    """Return sources and destinations of all edges, for members of shape (n_groups, n_domains, share)."""
    n_domains, share = blocks.shape[1:]
    sources: list[IntArray] = []
    destinations: list[IntArray] = []
    for ring in range(share):
        turned = np.roll(blocks, -ring, axis=2)
        first, last = turned[:, :, 0], turned[:, :, -1]
        sources += [turned[:, :, :-1].reshape(-1), (first if n_domains > 1 else last).reshape(-1)]
        destinations += [turned[:, :, 1:].reshape(-1), np.roll(first, -1, axis=1).reshape(-1)]
    return np.concatenate(sources), np.concatenate(destinations)
