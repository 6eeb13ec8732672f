"""The scale-out fabric as seen by the cluster: leaves, routes between them, and the division of traffic among routes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.hardware.models import Fabric, Switch
from clustersim.topology.cluster import BoolArray, FloatArray, IntArray, KeyArray, picked_among


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """Places with adapters on a fabric: the nodes in order, then the dedicated servers."""

    n_places: int
    n_adapters: int
    """In one node; of several kinds, in those that have most."""
    adapter_bandwidth_bytes_per_s: FloatArray
    """For each place, that of its adapters together over ``n_adapters``. A server counts as a node of the last kind."""
    one_by_one: bool = False
    """Whether each spine has its own links, even where one bundle would be exact."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouteRows:
    """Routes of pairs, one row each, filled up with -1.

    A route may be split over several paths; their links then stand one path after the other.
    """

    link_ids: IntArray
    """Shape (n_pairs, width); across the fabric, numbers of its own links."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleOut(ABC):
    """A fabric: leaf switches and the links between them."""

    n_leaves: int
    bandwidth_bytes_per_s: FloatArray
    """Bandwidth of each link as built."""
    latency_s: FloatArray
    tier_index: IntArray
    """Place in ``TIERS`` of each link's tier."""

    @abstractmethod
    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its place and, as of a node, its number there."""

    @abstractmethod
    def leaf_classes(self, works: BoolArray) -> IntArray:
        """Return a number for each leaf; different leaves with the same number reach the same others, and are reached by the same.

        Parameters
        ----------
        works
            Whether each link is up.
        """

    @abstractmethod
    def leaf_name(self, leaf: int) -> str:
        """Return the name of a leaf."""

    @abstractmethod
    def link_name(self, link: int) -> str:
        """Return the name of a link."""

    @abstractmethod
    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of the two ends of a link."""

    @abstractmethod
    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return how traffic gets from each leaf to the leaf at the same place."""


def left_fraction(condition: RoutingState, n_links: int) -> FloatArray:
    """Return the share of its bandwidth that each link has left."""
    return np.ones(n_links) if condition.left_fraction is None else condition.left_fraction


def hop_latency_s(below: Switch | None, above: Switch, cable_latency_s: float) -> float:
    """Return the latency that one cable carries: its own, and half of the switch at each of its ends.

    Half a switch on the way in and half on the way out add up to one traversal on any route that goes through it.
    """
    return (below.latency_s / 2 if below else 0.0) + cable_latency_s + above.latency_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """The leaf of each adapter and the pod of each leaf.

    A leaf has uplinks for its full complement of nodes, and a pod for its full complement of leaves, also where the
    cluster fills only some: the switches are bought for the full unit.
    """

    n_leaves: int
    n_pods: int
    nodes_per_unit: int
    leaves_per_unit: int
    """One leaf for all adapters of a node, or one for each rail."""
    leaves_per_pod: int
    n_adapters: int
    """In one node; of several kinds, in those that have most."""

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its place (node or server) and its number there."""
        return places // self.nodes_per_unit * self.leaves_per_unit + adapters * self.leaves_per_unit // self.n_adapters

    def pod_of(self, leaves: IntArray) -> IntArray:
        """Return the pod of each leaf."""
        return leaves // self.leaves_per_pod

    def adapter_bandwidth_bytes_per_s(self, below: Below) -> FloatArray:
        """Return the mean over the adapters below each leaf; the last node of a unit stands for missing ones."""
        units = _filled(below.adapter_bandwidth_bytes_per_s, self.nodes_per_unit)
        return np.repeat(units[:, 0] + (units - units[:, :1]).mean(axis=1), self.leaves_per_unit)

    def leaf_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> FloatArray:
        """Return the uplink bandwidth of each leaf: that of its adapters, over its oversubscription.

        Parameters
        ----------
        adapter_bandwidth_bytes_per_s
            Of the adapters at each leaf, in the mean.
        """
        below_bytes_per_s = self.nodes_per_unit * self.n_adapters / self.leaves_per_unit * adapter_bandwidth_bytes_per_s
        return below_bytes_per_s / fabric.oversubscription

    def pod_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> FloatArray:
        """Return what each pod can send up: the uplinks of its leaves, over the core oversubscription.

        Leaves that a pod lacks are taken to be like its last.
        """
        pods = _filled(self.leaf_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s), self.leaves_per_pod)
        return (self.leaves_per_pod * pods[:, 0] + (pods - pods[:, :1]).sum(axis=1)) / fabric.core_oversubscription


def _filled(values: FloatArray, size: int) -> FloatArray:
    """Return values in rows of a size; the last row is filled up with the last value."""
    return np.pad(values, (0, -len(values) % size), mode="edge").reshape(-1, size)


GRAIN: Final = 2.0**-44
"""Shares are multiples of it, so that sums of some hundred flows are exact, in whatever order they are taken."""


def narrowest(paths: IntArray, left: FloatArray) -> FloatArray:
    """Return the remaining share of each path: the least share of the undamaged bandwidth along it; 0 for a path without links.

    Parameters
    ----------
    paths
        Link numbers along the last axis, filled up with -1.
    left
        Share of its bandwidth that each link has.
    """
    open_ended = np.append(left, np.inf)
    least: FloatArray = np.min(open_ended[paths], axis=-1)
    return np.where(np.isinf(least), 0.0, least)


def shares(left: FloatArray, keys: KeyArray | None, stage: int) -> FloatArray:
    """Return the share of each pair's bytes on each of its paths: in proportion to their remaining bandwidth, or all on one by its hash.

    Parameters
    ----------
    left
        Shape (n_pairs, n_paths): share that is left of each path; 0 for one that is cut or not among the choices.
    """
    if keys is not None:
        chosen = picked_among(keys, stage, left > 0.0)
        paths = np.arange(left.shape[1], dtype=np.int64)
        return np.where((paths == chosen[:, None]) & (left > 0.0), 1.0, 0.0)
    whole = np.asarray(left.sum(axis=1), dtype=np.float64)
    return np.rint(left / np.where(whole > 0.0, whole, 1.0)[:, None] / GRAIN) * GRAIN
