"""Utilisation of links over time: the bytes of each operation, spread over the time in which it was in progress.

A replay keeps what every operation carried over every link, and when every operation ran, but not the rate at each moment. Here each
operation has one rate while it runs, so that within one operation nothing can be told apart. The mean over a step is exact, but for what
is cut where operations that wait for each other would add up to more than at the busiest moment. Of collectives inside a pass it is the
pass that runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.trace.columns import SpanColumns, columns_of
from clustersim.trace.timeline import LinkUse, Timeline

FloatArray = NDArray[np.float64]

TIER_ORDER: Final = ("nvlink", "pcie", "socket", "nic", "leaf", "spine", "memory", "storage")
"""From the accelerator outwards, then the host's own."""


def utilisation_over_time(timeline: Timeline, edges_s: FloatArray) -> dict[str, FloatArray]:
    r"""Return for each tier the utilisation of the links that are used, mean over them, between any two neighbouring moments.

    :math:`u_j = \sum_l n_l b_{lj} / (\Delta t_j \sum_l n_l C_l)` over the groups of links :math:`l` of a tier that carry anything, with
    :math:`b_{lj}` the bytes that cross a link in stretch :math:`j` and :math:`C_l` its data-sheet bandwidth; at most the highest moment of
    any of them.

    Parameters
    ----------
    edges_s
        Ascending moments, n + 1 of them, between the start of the first step and the end of the last.

    Returns
    -------
    dict
        By tier, in the order of :data:`TIER_ORDER`: n shares of the bandwidth, between 0 and 1.
    """
    shares = _Shares(timeline, edges_s)
    n_steps = timeline.duration_s / timeline.step_time_s if timeline.step_time_s > 0.0 else 1.0
    found: dict[str, FloatArray] = {}
    for tier, links in used_links(timeline).items():
        capacity_bytes_per_s = fsum(link.n_links * link.bandwidth_bytes_per_s for link in links)
        carried_bytes = np.zeros(len(edges_s) - 1)
        for name, size_bytes in _carried(links).items():
            carried_bytes += n_steps * size_bytes * shares.of(name)
        # Spread evenly, operations that wait for each other overlap; no stretch is busier than the busiest moment of the replay.
        highest = max(link.peak_utilisation for link in links)
        found[tier] = np.minimum(carried_bytes / (np.diff(edges_s) * capacity_bytes_per_s), highest)
    return found


def used_links(timeline: Timeline) -> dict[str, list[LinkUse]]:
    """Return the groups of links that carry anything, by tier, in the order of :data:`TIER_ORDER`."""
    found = {tier: [link for link in timeline.links if link.tier == tier and link.bytes > 0.0] for tier in TIER_ORDER}
    return {tier: links for tier, links in found.items() if links}


def mean_utilisation(links: Sequence[LinkUse], step_s: float) -> float:
    """Return the utilisation over the step, mean over some links."""
    busy_s = fsum(link.n_links * link.bytes / link.bandwidth_bytes_per_s for link in links)
    return busy_s / sum(link.n_links for link in links) / step_s


def _carried(links: list[LinkUse]) -> Mapping[tuple[str, ...], float]:
    """Return the bytes of each user on all links of a step; of a timeline that does not tell users apart, one sum."""
    total: dict[tuple[str, ...], float] = {}
    for link in links:
        for name, size_bytes in link.bytes_of or ((link.users, link.bytes),):
            total[name] = total.get(name, 0.0) + link.n_links * size_bytes
    return total


class _Shares:
    """For each user of links, the share of its bytes that falls between any two neighbouring moments."""

    def __init__(self, timeline: Timeline, edges_s: FloatArray) -> None:
        self._edges_s = edges_s
        self._duration_s = timeline.duration_s
        self._columns: SpanColumns = columns_of(timeline.spans).whole()
        patterns = self._columns.patterns
        ranks = np.array([rank_class.n_ranks for rank_class in timeline.rank_classes], dtype=np.float64)
        self._ranks: FloatArray = ranks[[each.rank_class for each in patterns]] if patterns else np.zeros(0)
        self._bytes: FloatArray = np.array([each.bytes for each in patterns], dtype=np.float64)
        self._names = np.array([each.name for each in patterns], dtype=np.object_)
        self._dimensions = np.array([each.dimension if each.kind == "communication" else None for each in patterns], dtype=np.object_)
        self._inside_s: defaultdict[str, FloatArray] = defaultdict(lambda: np.zeros(len(patterns)))
        """For each dimension the seconds that each pattern spends along it inside a pass, waited for or hidden."""
        for place, each in enumerate(patterns):
            for dimension, seconds in (*each.exposed_s, *each.hidden_s):
                self._inside_s[dimension][place] += seconds
        self._known: dict[tuple[str, ...], FloatArray] = {}

    def of(self, names: tuple[str, ...]) -> FloatArray:
        """Return the shares of a user, whose names begin with its dimension; of one without spans, such as background, all."""
        if names not in self._known:
            weights = sum((self._weights(name) for name in names), np.zeros(len(self._columns.patterns)))
            self._known[names] = self._spread(weights[self._columns.pattern])
        return self._known[names]

    def _weights(self, name: str) -> FloatArray:
        """Return for each pattern the seconds of an operation in it: those spans that bear its name, or all of its dimension."""
        dimension, _, operation = name.partition(" ")
        moving = self._dimensions == dimension
        named = moving & (self._names == operation)
        if not named.any():
            gathers = operation == "all-gather"
            named[moving] = [each.startswith("gather") == gathers for each in self._names[moving]]
        chosen = named if named.any() else moving
        inside_bytes = self._inside_s[dimension] * self._bytes_per_s(dimension)
        return self._ranks * np.where(chosen, self._bytes, inside_bytes)

    def _bytes_per_s(self, dimension: str) -> float:
        """Return how much a second inside a pass weighs beside bytes; of no account where a dimension is only ever inside or beside."""
        inside_s = self._inside_s[dimension]
        seconds = fsum(inside_s[inside_s > 0.0].tolist())
        return fsum(self._bytes[inside_s > 0.0].tolist()) / seconds if seconds > 0.0 else 1.0

    def _spread(self, weights: FloatArray) -> FloatArray:
        columns = self._columns
        length_s = columns.end_s - columns.start_s
        kept = (weights > 0.0) & (length_s > 0.0)
        weights = weights[kept]
        if not weights.sum() > 0.0:
            return np.diff(self._edges_s) / self._duration_s
        start_s, end_s = columns.start_s[kept], columns.end_s[kept]
        return np.diff(_ramps(self._edges_s, start_s, end_s, weights / weights.sum()))


def _ramps(moments_s: FloatArray, start_s: FloatArray, end_s: FloatArray, heights: FloatArray) -> FloatArray:
    """Return at some moments the sum of ramps that rise from nought at their start to their height at their end."""
    slopes = heights / (end_s - start_s)

    def risen(at_s: FloatArray) -> FloatArray:
        order = np.argsort(at_s, kind="stable")
        slope, offset = np.cumsum(slopes[order]), np.cumsum((slopes * at_s)[order])
        n_begun = np.searchsorted(at_s[order], moments_s, side="right")
        some = n_begun > 0
        last = np.maximum(n_begun - 1, 0)
        return np.where(some, slope[last] * moments_s - offset[last], 0.0)

    return np.maximum.accumulate(np.clip(risen(start_s) - risen(end_s), 0.0, None))
