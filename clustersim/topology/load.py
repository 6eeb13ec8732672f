"""What something in flight asks of the links."""

from __future__ import annotations

from dataclasses import dataclass

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
