"""A collective without a size: link loads per byte of the tensor, and sequential steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray, Routes
from clustersim.topology.link_demand import Crossings, RouteSet, are_ones, summed
from clustersim.topology.wired import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """Groups of ranks that do the same thing at the same time, by where their members are."""

    members: IntArray
    """Shape (n_groups, size): global ranks, ascending in each group. The first of a group is its root."""
    domains: IntArray
    """Same shape: the scale-up domain of each member."""
    n_domains: int
    """Most domains that a group spans."""
    per_domain: int
    """Members of a group in each of its domains; 0 where groups, or domains of a group, differ."""

    @property
    def size(self) -> int:
        """Ranks in one group."""
        return int(self.members.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """Numbers of flows from each source to the destination at the same place."""

    sources: IntArray
    destinations: IntArray
    counts: FloatArray

    def back(self) -> Flows:
        """Return the same flows in the opposite direction."""
        return Flows(sources=self.destinations, destinations=self.sources, counts=self.counts)

    def times(self, factor: float) -> Flows:
        """Return the flows times a number."""
        return Flows(sources=self.sources, destinations=self.destinations, counts=self.counts * factor)

    def where(self, chosen: IntArray) -> Flows:
        """Return the flows at some places."""
        return Flows(sources=self.sources[chosen], destinations=self.destinations[chosen], counts=self.counts[chosen])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowSet:
    """Flows of all groups that advance in lock-step: one variable for the network.

    While a flow with coefficient 1 moves x bytes, a link with ``route_set.flows[i]`` carries that times x.
    """

    route_set: RouteSet
    share: float
    """Bytes moved by a flow with coefficient 1, for each byte of the tensor."""
    intra_steps: int
    """Sequential steps inside a domain."""
    inter_steps: int
    """The same between domains."""
    intra_latency_s: float
    """Greatest wire latency of one step inside a domain, in seconds; 0 without any."""
    inter_latency_s: float
    """The same between domains."""
    relays: int = 0
    """Steps between domains that pass a chunk of a channel on when they have all of it."""
    channels: int = 1
    """Channels that share the rate of such a chain."""
    crossings: tuple[Crossings, ...] = ()
    """The single flows of the route set; none where a single group makes them all, and for parameter servers."""
    flows: tuple[Flows, ...] = ()
    """Between which ranks the flows of the crossings run, in their order; none where a crossing is anything else."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """A collective: sequential phases of concurrent coupled flows."""

    phases: tuple[tuple[FlowSet, ...], ...]
    uniform: bool
    """False where members are placed unequally, so that the slowest sets the rate of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm of one operation."""

    name: str
    lay: Callable[[Cluster, Grouping], Pattern]
    """Raises DomainError where the cluster or the group cannot run it; the message names what is missing."""


def grouping(cluster: Cluster, members: IntArray) -> Grouping:
    """Return groups by where their members are.

    Parameters
    ----------
    members
        Shape (n_groups, size): global ranks, in any order; each stands once in a group.
    """
    ordered = np.sort(members, axis=1)
    domains = cluster.domain_of(ordered.reshape(-1)).reshape(ordered.shape)
    spans = (np.diff(domains, axis=1) != 0).sum(axis=1) + 1
    n_domains = int(spans.max())
    per_domain, rest = divmod(ordered.shape[1], n_domains)
    if rest or not bool((spans == n_domains).all()):
        per_domain = 0
    else:
        blocks = domains.reshape(len(ordered), n_domains, per_domain)
        per_domain = per_domain if bool((blocks == blocks[:, :, :1]).all()) else 0
    return Grouping(members=ordered, domains=domains, n_domains=n_domains, per_domain=per_domain)


def route_set(routes: Routes, flows: FloatArray | None = None) -> RouteSet:
    """Return how many flows cross each link.

    Parameters
    ----------
    flows
        Coefficient of each pair of the routes; 1 when left out.
    """
    return summed(routes.link_ids, routes.weights if flows is None else amounts(routes, flows))


def amounts(routes: Routes, flows: FloatArray) -> FloatArray:
    """Return how many flows of each pair cross each link of its route, given how many there are of each pair."""
    return routes.weights if are_ones(flows) else routes.weights * np.repeat(flows, np.diff(routes.starts))
