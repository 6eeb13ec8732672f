"""Links that can ever be a bottleneck: a link that others saturate first separates no ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import FABRIC, FloatArray, IntArray, LinkFloats, Rotation
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster

BoolArray = NDArray[np.bool_]

ROUND_OFF: Final = 1e-12
"""Relative difference between sums of equal capacities and their product."""


def implied_links(
    crossings: Sequence[Crossings],
    opaque: IntArray,
    cluster: Cluster,
    capacity_bytes_per_s: FloatArray | LinkFloats,
    rotation: Rotation | None = None,
) -> BoolArray:
    """Return for each link of a cluster whether its capacity never matters, because that of others implies it.

    All that crosses a link comes from the links that stand before it on the routes. Where these together have no more capacity
    than it has, it is never overbooked unless one of them is; and the same holds for the links behind it. Max-min fair
    rates depend on what is feasible alone, so that they are the same without such a link. Only links of the fabric are looked at.

    Parameters
    ----------
    crossings
        All flows that can be in flight, each by the links of its route in order.
    opaque
        Links that something else crosses too.
    capacity_bytes_per_s
        Usable, of each link.
    rotation
        A rotation of the cluster, where the flows are those of the lowest ranks on the lowest of links that are alike.
    """
    n_links = len(capacity_bytes_per_s)
    fabric = fabric_links(cluster)
    fabric[opaque] = False
    before, behind = _neighbours(crossings, fabric, n_links)
    n_alike = None if rotation is None else rotation.n_alike
    by_feeders = _implied(before, fabric, capacity_bytes_per_s, n_alike)
    # A link cannot be implied by one that is there no more.
    by_followers = _implied(behind, fabric & ~by_feeders, capacity_bytes_per_s, n_alike, gone=by_feeders)
    return by_feeders | by_followers


def fabric_links(cluster: Cluster) -> BoolArray:
    """Return for each link whether it is one between switches."""
    tiers = cluster.tier_index
    return np.isin(tiers.values, FABRIC)[tiers.kinds]


def _neighbours(crossings: Sequence[Crossings], wanted: BoolArray, n_links: int) -> tuple[IntArray, IntArray]:
    """Return pairs of each wanted link with the previous and with the next link on a route; shape (n_pairs, 2).

    In the place of the other stands -1 where nothing implies a link: where a flow that carries more on it than on the other crosses it,
    or one that begins or ends there.
    """
    before: list[IntArray] = []
    behind: list[IntArray] = []
    for each in crossings:
        begins = np.zeros(len(each.link_ids) + 1, dtype=np.bool_)
        begins[each.starts] = True
        chosen = np.flatnonzero(wanted[each.link_ids])
        keys, amounts = each.link_ids[chosen] * (n_links + 1), each.amounts[chosen]
        for found, step, ends in ((before, -1, begins[chosen]), (behind, 1, begins[chosen + 1])):
            other = np.clip(chosen + step, 0, max(0, len(each.link_ids) - 1))
            unknown = ends | (amounts > each.amounts[other])
            found.append(_distinct(keys + np.where(unknown, n_links, each.link_ids[other])))
    return _pairs(before, n_links), _pairs(behind, n_links)


def _pairs(keys: Sequence[IntArray], n_links: int) -> IntArray:
    links, others = np.divmod(_distinct(np.concatenate([np.zeros(0, dtype=np.int64), *keys])), n_links + 1)
    return np.stack((links, np.where(others == n_links, -1, others)), axis=1)


def _distinct(keys: IntArray) -> IntArray:
    """Return numbers in order, each once: by merging their ascending stretches, which is faster for these than hashing."""
    ordered = np.sort(keys, kind="stable")
    return ordered[np.concatenate((np.ones(min(1, len(keys)), dtype=np.bool_), ordered[1:] != ordered[:-1]))]


def _implied(
    pairs: IntArray,
    wanted: BoolArray,
    capacity_bytes_per_s: FloatArray | LinkFloats,
    n_alike: NDArray[np.int8] | None,
    *,
    gone: BoolArray | None = None,
) -> BoolArray:
    """Return which of the wanted links are implied by their neighbours; of links that go round in a circle none is.

    A link that stays where it is under the rotation has all the links for neighbours that take the place of one.
    """
    implied = np.zeros(len(wanted), dtype=np.bool_)
    of_wanted = wanted[pairs[:, 0]]
    links, rows = np.unique(pairs[of_wanted, 0], return_inverse=True)
    rows, others = rows.reshape(-1), pairs[of_wanted, 1]
    hopeless = others < 0
    if gone is not None:
        hopeless |= gone[others]
    times = 1 if n_alike is None else np.where(n_alike[links][rows] == 1, n_alike[others], 1)
    room_bytes_per_s = np.bincount(rows, weights=np.where(hopeless, np.inf, times * capacity_bytes_per_s[others]), minlength=len(links))
    undecided = room_bytes_per_s <= capacity_bytes_per_s[links] * (1.0 + ROUND_OFF)
    # Where the other of a pair stands among the links themselves; those that are not there are decided.
    place = np.minimum(np.searchsorted(links, others), max(0, len(links) - 1))
    is_link = ~hopeless & (links[place] == others)
    while True:
        waits = np.bincount(rows, weights=is_link & undecided[place], minlength=len(links)) > 0
        ready = undecided & ~waits
        if not ready.any():
            return implied
        undecided &= ~ready
        implied[links[ready]] = True
