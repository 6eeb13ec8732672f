"""All-reduce in the switches of the fabric, which add what comes from below and send the result back to all (SHARP)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import NO_FLOWS, crossings, flow_set, joined
from clustersim.collectives.group_layout import GroupLayout, chains, largest_block, layouts, most_rails
from clustersim.collectives.nvls import in_switches, way_through_switch_s, without_adding_switch
from clustersim.collectives.pattern import Algorithm, Flows, Grouping, Pattern
from clustersim.errors import DomainError
from clustersim.topology.cluster import TIERS, FloatArray, IntArray
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster


def lay_sharp(cluster: Cluster, group: Grouping) -> Pattern:
    """Return an all-reduce by the switches between domains.

    In each domain the head of a rail collects its share, ``S / g``, and sends it to the leaf. Leaves add what comes from below and
    send one stream up, however many are below, as do spines towards a core; the sum comes down the same way. Inside domains
    the switch adds and multicasts where it can; elsewhere shares travel along rings. Everything flows at once.

    References
    ----------
    .. [1] R. L. Graham et al., "Scalable hierarchical aggregation protocol (SHArP): a hardware architecture for efficient data
       reduction", COM-HPC 2016.
    """
    _check(cluster, group)
    found = layouts(group)
    n_rails = most_rails(found)
    adds = not without_adding_switch(cluster, group)
    inside: list[Flows] = []
    beside: list[Crossings] = []
    longest_s = 0.0
    for layout in found:
        factor = n_rails / layout.n_rails
        streams, latency_s = _streams(cluster, layout, factor)
        beside += streams
        longest_s = max(longest_s, latency_s)
        if adds:
            beside += in_switches(cluster, layout, whole=float(n_rails))
        else:
            chain = chains(cluster, layout).times(factor)
            inside += [chain, chain.back()]
    trip = largest_block(found) - 1
    steps = (2 * min(1, trip) if adds else 2 * trip, 1)
    collected = flow_set(cluster, inside=joined(inside), between=NO_FLOWS, share=1 / n_rails, steps=steps, beside=beside)
    collected = replace(collected, inter_latency_s=longest_s)
    if adds:
        collected = replace(collected, intra_latency_s=way_through_switch_s(cluster, group.members.reshape(-1)))
    return Pattern(phases=((collected,),), uniform=group.per_domain > 0)


def _check(cluster: Cluster, group: Grouping) -> None:
    if not cluster.fabric.in_network_reduction:
        raise DomainError(
            f"sharp needs switches that add: the fabric of {cluster.node.name} has none",
            path=("cluster", "fabric", "in_network_reduction"),
            hint="use ring or tree",
        )
    if group.n_domains == 1:
        raise DomainError("sharp adds in the switches between scale-up domains, and the group lies in one", hint="use nvls or ring")


def _streams(cluster: Cluster, layout: GroupLayout, flows: float) -> tuple[tuple[Crossings, ...], float]:
    """Return the streams of all rails to the switches and back, and the greatest latency from a rank up to the root and down to another."""
    rails = layout.heads().transpose(0, 2, 1).reshape(-1, layout.n_domains)
    heads = rails.reshape(-1)
    up, down = cluster.to_leaf(heads), cluster.from_leaf(heads)
    counts = np.full(len(heads), flows)
    above, above_s = _above_leaves(cluster, rails, flows)
    longest_s = max(above_s, float(up.latency_s.max()) + float(down.latency_s.max()))
    return (crossings(up, heads, counts), crossings(down, heads, counts), above), longest_s


def _above_leaves(cluster: Cluster, rails: IntArray, flows: float) -> tuple[Crossings, float]:
    """Return a number of streams up and down for each rail and each switch with members below it.

    Parameters
    ----------
    rails
        Shape (n_rails, n_domains): the members of each rail.

    Notes
    -----
    The links are those of the routes from one member below each leaf to the first member and back, each once: a leaf or a pod
    that several routes leave sends the sum of what they would carry.
    """
    n_rails, n_members = int(rails.shape[0]), int(rails.shape[1])
    leaves = cluster.leaf_of(rails.reshape(-1))
    owners = np.repeat(np.arange(n_rails, dtype=np.int64), n_members)
    _, firsts = np.unique(owners * cluster.n_leaves + leaves, return_index=True)
    low, high = rails.reshape(-1)[firsts], rails[owners[firsts], 0]
    parts: list[tuple[IntArray, FloatArray]] = []
    latency_s = 0.0
    n_links = len(cluster.bandwidth_bytes_per_s)
    for routes in (cluster.routes(low, high), cluster.routes(high, low)):
        fabric = np.isin(cluster.tier_index[routes.link_ids], (TIERS.index("leaf"), TIERS.index("spine")))
        keys = np.repeat(owners[firsts], np.diff(routes.starts)) * n_links + routes.link_ids
        parts.append((keys[fabric], routes.weights[fabric]))
        latency_s = max(latency_s, float(routes.latency_s.max(initial=0.0)))
    streams, places = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    weights = np.zeros(len(streams))
    np.maximum.at(weights, places, np.concatenate([weights for _, weights in parts]))
    above = Crossings(
        ranks=rails[:, 0],
        starts=np.searchsorted(streams // n_links, np.arange(n_rails + 1)),
        link_ids=streams % n_links,
        amounts=weights * flows,
        latency_s=np.full(n_rails, latency_s),
    )
    return above, latency_s


SHARP: Final = Algorithm(name="sharp", lay=lay_sharp)
