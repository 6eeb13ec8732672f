"""The scale-out fabric as the rest of a cluster sees it: what adapters hang at, and the ways between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clustersim.hardware.models import Switch
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.hashing import BoolArray, KeyArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """Places that hang at a fabric: the nodes in order and then the dedicated servers."""

    n_places: int
    n_adapters: int
    """In one node; of several kinds, in those that have most."""
    adapter_bandwidth_bytes_per_s: FloatArray
    """For each place, that of its adapters together over ``n_adapters``. A server counts as a node of the last kind."""
    one_by_one: bool = False
    """Whether each spine has links of its own, also where one bundle could stand for all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FabricPaths:
    """Ways of pairs across the fabric: one row each, filled up with -1.

    A way may be split over several paths; their links then stand one path after the other.
    """

    link_ids: IntArray
    """Shape (n_pairs, width): numbers of the fabric's own links."""
    weights: FloatArray | None
    """Same shape: share of the pair's bytes on each link; None where every link carries all of them."""
    reached: BoolArray
    """False for a pair that no path joins."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingState:
    """Inputs of routing, beside the shape of the fabric."""

    keys: KeyArray | None
    """Hash of each pair, where it picks the path; None where flows are spread."""
    left_fraction: FloatArray | None
    """Share of the bandwidth as built that each link of the fabric has, 0 where it is down; None as long as all are as built."""


class ScaleOut(Protocol):
    """A fabric: leaves that adapters hang at, and links between them."""

    @property
    def n_leaves(self) -> int:
        """Number of switches that adapters hang at."""
        ...

    @property
    def bandwidth_bytes_per_s(self) -> FloatArray:
        """Bandwidth of each link as built."""
        ...

    @property
    def latency_s(self) -> FloatArray:
        """Latency of each link."""
        ...

    @property
    def tier_index(self) -> IntArray:
        """Place in ``TIERS`` of each link's tier."""
        ...

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its place and, as of a node, its number there."""
        ...

    def leaf_classes(self, works: BoolArray) -> IntArray:
        """Return a number for each leaf; different leaves with the same number reach the same others, and are reached by the same.

        Parameters
        ----------
        works
            Whether each link is up.
        """
        ...

    def leaf_name(self, leaf: int) -> str:
        """Return the name of a leaf."""
        ...

    def link_name(self, link: int) -> str:
        """Return the name of a link."""
        ...

    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of what a link leads from and to."""
        ...

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> FabricPaths:
        """Return how traffic gets from each leaf to the leaf at the same place."""
        ...


def left_fraction(condition: RoutingState, n_links: int) -> FloatArray:
    """Return the share of its bandwidth that each link has left."""
    return np.ones(n_links) if condition.left_fraction is None else condition.left_fraction


def hop_latency_s(below: Switch | None, above: Switch, cable_latency_s: float) -> float:
    """Return the latency that one cable carries: its own, and half of the switch at each of its ends.

    Half a switch on the way in and half on the way out add up to one traversal on any route that goes through it.
    """
    return (below.latency_s / 2 if below else 0.0) + cable_latency_s + above.latency_s / 2
