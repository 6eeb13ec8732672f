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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crossings:
    """The flows of a footprint one by one: flow i is sent by ``ranks[i]`` and crosses ``link_ids[starts[i]:starts[i + 1]]``."""

    ranks: IntArray
    starts: IntArray
    link_ids: IntArray
    amounts: FloatArray
    """What each of these links carries for each byte of the wave's progress."""
    latency_s: FloatArray
    """Of each flow, along the wires."""
