"""Load of flows on links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import FloatArray, IntArray

DENSE: Final = 4
"""Largest ratio of id range to list length at which links are summed in a dense table."""
CACHED: Final = 1 << 12
"""Range of ids up to which they always are: a table that fits the processor's cache."""
LOOK: Final = 64
"""Values that are looked at before all of them."""
MOST_SHORT: Final = 1 << 31
"""Range of ids that 32 bits hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouteSet:
    """Flows that advance in lock-step, by the links they cross.

    A ring all-reduce is many flows of equal rate; so are all groups of an instance set together. The network sees them as one
    variable, whose rate is the rate of one flow: a link that ``flows[i]`` of them cross carries ``flows[i] * rate``.
    """

    link_ids: IntArray
    """Distinct links, ascending."""
    flows: FloatArray
    """Number of flows on each of these links; fractions where routing spreads them."""


def ones(number: int) -> FloatArray:
    """Return an array of ones that takes no memory."""
    return np.broadcast_to(np.ones(1), number)


def are_ones(values: FloatArray) -> bool:
    """Return whether all values are one."""
    # Shares of flows that are spread show at once.
    few = bool((values[:LOOK] == 1.0).all())
    return few and (len(values) <= LOOK or values.strides == (0,) or bool((values == 1.0).all()))


def summed(link_ids: IntArray, flows: FloatArray) -> RouteSet:
    """Return the total load of each link; a link may occur several times, and links without load are left out.

    The time and the memory that it takes depend on the length of the list, not on how many links there are.

    Examples
    --------
    >>> summed(np.array([7, 3, 7]), np.array([1.0, 2.0, 0.5]))
    RouteSet(link_ids=array([3, 7]), flows=array([2. , 1.5]))
    """
    if not len(link_ids):
        return RouteSet(link_ids=link_ids, flows=np.zeros(0))
    first = int(link_ids.min())
    n_between = int(link_ids.max()) + 1 - first
    if n_between <= max(DENSE * len(link_ids), CACHED):
        weights = None if are_ones(flows) else flows
        total = np.bincount(link_ids - first, weights=weights, minlength=n_between)
        used = np.flatnonzero(total)
        return RouteSet(link_ids=used + first, flows=total[used].astype(np.float64, copy=False))
    if are_ones(flows):
        ordered = np.sort(_short(link_ids, first, n_between), kind="stable")
        begins = _begins(ordered)
        return RouteSet(link_ids=ordered[begins].astype(np.int64) + first, flows=np.diff(begins, append=len(ordered)).astype(np.float64))
    found, places = distinct(link_ids)
    return _loaded(found, np.bincount(places, weights=flows, minlength=len(found)).astype(np.float64, copy=False))


def distinct(link_ids: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct links of a list, ascending, and the place among them of each link of the list.

    Examples
    --------
    >>> distinct(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """
    if not len(link_ids):
        return link_ids, link_ids
    first = int(link_ids.min())
    n_between = int(link_ids.max()) + 1 - first
    if n_between > max(DENSE * len(link_ids), CACHED):
        short = _short(link_ids, first, n_between)
        order = np.argsort(short, kind="stable")
        ordered = short[order]
        begins = _begins(ordered)
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.repeat(np.arange(len(begins), dtype=np.int64), np.diff(begins, append=len(order)))
        return ordered[begins].astype(np.int64) + first, places
    place_of = np.zeros(n_between, dtype=np.int64)
    place_of[link_ids - first] = 1
    found = np.flatnonzero(place_of)
    place_of[found] = np.arange(len(found), dtype=np.int64)
    return found + first, place_of[link_ids - first]


def _short(link_ids: IntArray, first: int, n_between: int) -> NDArray[np.int32 | np.int64]:
    """Return links counted from the first, in short numbers where these hold them: they are sorted in half the time.

    Links of routes are long stretches in ascending order, which a stable sort only merges.
    """
    return (link_ids - first).astype(np.int32) if n_between < MOST_SHORT else link_ids - first


def _begins(ordered: NDArray[np.int32 | np.int64]) -> IntArray:
    """Return the first place of each number in an ordered list."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _loaded(link_ids: IntArray, flows: FloatArray) -> RouteSet:
    used = flows > 0.0
    if used.all():
        return RouteSet(link_ids=link_ids, flows=flows)
    return RouteSet(link_ids=link_ids[used], flows=flows[used])


@dataclass(slots=True, eq=False)
class Sum:
    """Sum of the loads of many route sets on each link."""

    _link_ids: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _flows: FloatArray = field(default_factory=lambda: np.zeros(0))

    def add(self, route_set: RouteSet) -> None:
        """Add what one more puts on its links."""
        places = np.searchsorted(self._link_ids, route_set.link_ids)
        inside = len(places) == 0 or int(places[-1]) < len(self._link_ids)
        if inside and bool((self._link_ids[places] == route_set.link_ids).all()):
            self._flows[places] += route_set.flows
            return
        both = (np.concatenate((self._link_ids, route_set.link_ids)), np.concatenate((self._flows, route_set.flows)))
        total = summed(*both)
        self._link_ids, self._flows = total.link_ids, total.flows

    def route_set(self) -> RouteSet:
        """Return the sum so far."""
        return RouteSet(link_ids=self._link_ids, flows=self._flows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crossings:
    """Single flows of a route set: rank ``ranks[i]`` sends flow i over ``link_ids[starts[i]:starts[i + 1]]``."""

    ranks: IntArray
    starts: IntArray
    link_ids: IntArray
    amounts: FloatArray
    """Bytes on each of these links per byte of progress of the coupled flow."""
    latency_s: FloatArray
    """Wire latency of each flow, in seconds."""


def taken(crossings: Crossings, chosen: IntArray) -> Crossings:
    """Return some of the flows, in the order in which they are named."""
    lengths = np.diff(crossings.starts)[chosen]
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    entries = np.repeat(crossings.starts[chosen] - starts[:-1], lengths) + np.arange(int(starts[-1]), dtype=np.int64)
    return Crossings(
        ranks=crossings.ranks[chosen],
        starts=starts,
        link_ids=crossings.link_ids[entries],
        amounts=ones(len(entries)) if are_ones(crossings.amounts) else crossings.amounts[entries],
        latency_s=crossings.latency_s[chosen],
    )


def chained(parts: Sequence[Crossings]) -> Crossings:
    """Return the flows of all parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    lengths = np.cumsum([0, *(len(part.link_ids) for part in parts)])
    nothing, of_one = np.zeros(0, dtype=np.int64), all(are_ones(part.amounts) for part in parts)
    return Crossings(
        ranks=np.concatenate([nothing, *(part.ranks for part in parts)]),
        starts=np.concatenate(
            [nothing, *(part.starts[:-1] + first for part, first in zip(parts, lengths[:-1], strict=True)), lengths[-1:]]
        ),
        link_ids=np.concatenate([nothing, *(part.link_ids for part in parts)]),
        amounts=ones(int(lengths[-1])) if of_one else np.concatenate([np.zeros(0), *(part.amounts for part in parts)]),
        latency_s=np.concatenate([np.zeros(0), *(part.latency_s for part in parts)]),
    )
