"""Pairwise all-to-all: one partner at a time, so that no adapter receives from two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import BATCH
from clustersim.collectives.pattern import Algorithm, FlowSet, Grouping, Pattern
from clustersim.topology.cluster import TIERS, FloatArray, IntArray
from clustersim.topology.link_demand import RouteSet, Sum, distinct
from clustersim.topology.wired import Cluster

ROUND_OFF: Final = 1e-9
"""Links whose times differ by less, relative to the longest, are taken to be busy equally long."""


@dataclass(slots=True, eq=False)
class _Rounds:
    """Rounds with the same narrowest links, added up."""

    leaves: bool
    load: Sum = field(default_factory=Sum)
    n_rounds: int = 0
    latency_s: float = 0.0


def partners(n_ranks: int, rounds: IntArray) -> IntArray:
    """Return to whom each place sends in each round, shape (n_rounds, n_ranks): ``i xor r`` for powers of two, otherwise ``(i + r) mod n``.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", 2005, section 4.4.
    """
    places = np.arange(n_ranks, dtype=np.int64)
    if n_ranks & (n_ranks - 1) == 0:
        return places ^ rounds[:, None]
    return (places + rounds[:, None]) % n_ranks


def lay_pairwise(cluster: Cluster, group: Grouping) -> Pattern:
    """Return ``n - 1`` rounds in which every rank sends ``S / n`` to one other, and receives as much.

    Notes
    -----
    A round lasts as long as its most loaded link. Where the same link is the most loaded in several rounds, their sum lasts as long
    as the sum of their loads, so that such rounds are one phase: a flow set of their mean load and as many steps. To stay right
    when tiers reach different shares of their bandwidth, the most loaded link of every tier has to be the same.
    """
    n = group.size
    merged: dict[tuple[int, ...], _Rounds] = {}
    per_batch = max(1, BATCH // group.members.size)
    for first in range(1, n, per_batch):
        _add_rounds(merged, cluster, group, partners(n, np.arange(first, min(first + per_batch, n), dtype=np.int64)))
    return Pattern(phases=tuple((_flow_set(rounds, n),) for rounds in merged.values()), uniform=group.per_domain > 0)


def _add_rounds(merged: dict[tuple[int, ...], _Rounds], cluster: Cluster, group: Grouping, there: IntArray) -> None:
    """Route some rounds and add each to those that are like it."""
    n_rounds = len(there)
    destinations = group.members[:, there].transpose(1, 0, 2).reshape(-1)
    routes = cluster.routes(np.tile(group.members.reshape(-1), n_rounds), destinations)
    rows = np.repeat(np.arange(len(destinations), dtype=np.int64) // group.members.size, np.diff(routes.starts))
    link_ids, places = distinct(routes.link_ids)
    counted = np.bincount(rows * len(link_ids) + places, weights=routes.weights, minlength=n_rounds * len(link_ids))
    loads = counted.reshape(n_rounds, len(link_ids)).astype(np.float64, copy=False)
    leave = (group.domains[:, there].transpose(1, 0, 2) != group.domains).reshape(n_rounds, -1)
    latencies_s = routes.latency_s.reshape(n_rounds, -1)
    for key, load, leaves, ways_s in zip(_keys(cluster, link_ids, loads), loads, leave, latencies_s, strict=True):
        crosses = bool(leaves.any())
        rounds = merged.setdefault((int(crosses), *key), _Rounds(leaves=crosses))
        used = np.flatnonzero(load)
        rounds.load.add(RouteSet(link_ids=link_ids[used], flows=load[used]))
        rounds.n_rounds += 1
        rounds.latency_s += float(ways_s[leaves].max() if crosses else ways_s.max())


def _keys(cluster: Cluster, link_ids: IntArray, loads: FloatArray) -> list[tuple[int, ...]]:
    """Return for each round the tier with the most loaded link, and the most loaded link of each tier."""
    times, tiers = loads / cluster.bandwidth_bytes_per_s[link_ids], cluster.tier_index[link_ids]
    longest = np.zeros((len(loads), len(TIERS)))
    links = np.full((len(loads), len(TIERS)), -1, dtype=np.int64)
    for tier in range(len(TIERS)):
        of_tier = np.flatnonzero(tiers == tier)
        if len(of_tier):
            longest[:, tier] = times[:, of_tier].max(axis=1)
            busiest = np.argmax(times[:, of_tier] >= longest[:, tier, None] * (1.0 - ROUND_OFF), axis=1)
            links[:, tier] = link_ids[of_tier[busiest]]
    links[longest == 0.0] = -1
    narrowest = np.argmax(longest >= longest.max(axis=1, keepdims=True) * (1.0 - ROUND_OFF), axis=1)
    return [(int(tier), *(int(link) for link in row)) for tier, row in zip(narrowest, links, strict=True)]


def _flow_set(rounds: _Rounds, n_ranks: int) -> FlowSet:
    load = rounds.load.route_set()
    latency_s = rounds.latency_s / rounds.n_rounds
    return FlowSet(
        route_set=RouteSet(link_ids=load.link_ids, flows=load.flows / rounds.n_rounds),
        share=rounds.n_rounds / n_ranks,
        intra_steps=0 if rounds.leaves else rounds.n_rounds,
        inter_steps=rounds.n_rounds if rounds.leaves else 0,
        intra_latency_s=0.0 if rounds.leaves else latency_s,
        inter_latency_s=latency_s if rounds.leaves else 0.0,
    )


PAIRWISE: Final = Algorithm(name="pairwise", lay=lay_pairwise)
