"""What something in flight asks of the links."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """Flows that advance in lock-step, by the links they cross.

    A ring all-reduce is many flows of equal rate; so are all groups of an orbit together. The network sees them as one
    variable, whose rate is the rate of one flow: a link that ``flows[i]`` of them cross carries ``flows[i] * rate``.
    """

    link_ids: IntArray
    """Distinct links, ascending."""
    flows: FloatArray
    """Number of flows on each of these links; fractions where routing spreads them."""


def summed(link_ids: IntArray, flows: FloatArray) -> Footprint:
    """Return what is put on each link in all; a link may be listed any number of times.

    The time and the memory that it takes depend on the length of the list, not on how many links there are.

    Examples
    --------
    >>> summed(np.array([7, 3, 7]), np.array([1.0, 2.0, 0.5]))
    Footprint(link_ids=array([3, 7]), flows=array([2. , 1.5]))
    """
    found, places = np.unique(link_ids, return_inverse=True)
    return Footprint(link_ids=found, flows=np.bincount(places, weights=flows, minlength=len(found)).astype(np.float64, copy=False))


@dataclass(slots=True, eq=False)
class Sum:
    """What many footprints put on each link in all, one after the other."""

    _link_ids: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _flows: FloatArray = field(default_factory=lambda: np.zeros(0))

    def add(self, footprint: Footprint) -> None:
        """Add what one more puts on its links."""
        places = np.searchsorted(self._link_ids, footprint.link_ids)
        inside = len(places) == 0 or int(places[-1]) < len(self._link_ids)
        if inside and bool((self._link_ids[places] == footprint.link_ids).all()):
            self._flows[places] += footprint.flows
            return
        both = (np.concatenate((self._link_ids, footprint.link_ids)), np.concatenate((self._flows, footprint.flows)))
        total = summed(*both)
        self._link_ids, self._flows = total.link_ids, total.flows

    def footprint(self) -> Footprint:
        """Return the sum so far, of links that carry anything."""
        return loaded(Footprint(link_ids=self._link_ids, flows=self._flows))


def loaded(footprint: Footprint) -> Footprint:
    """Return a footprint without links that nothing crosses."""
    used = footprint.flows > 0.0
    return footprint if used.all() else Footprint(link_ids=footprint.link_ids[used], flows=footprint.flows[used])
