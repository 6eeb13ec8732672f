"""A tree of single uplinks, on which flows may collide on one cable while others are idle."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TypedDict

import numpy as np

from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import TIERS, BoolArray, FloatArray, IntArray, KeyArray, picked, picked_among
from clustersim.topology.scale_out import Leaves, RouteRows, RoutingState, ScaleOut, hop_latency_s, left_fraction, narrowest, shares

_AT_LEAF, _AT_SPINE, _AT_CORE, _DOWN = range(4)
"""Stages of the hash: which cable a switch takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabling:
    """Numbers of switches above the leaves, and of cables to each."""

    n_spines: int
    """In one pod."""
    to_spine: int
    """Cables from a leaf to each of its spines."""
    n_cores: int
    """Core switches that one spine of every pod reaches."""
    to_core: int
    """Cables from a spine to each of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeafTree(ScaleOut):
    """Leaves, and the links above them: up and down of each leaf, then of each pod."""

    leaves: Leaves

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter."""
        return self.leaves.leaf_of(places, adapters)

    def leaf_name(self, leaf: int) -> str:
        """Return the name of a leaf."""
        return f"leaf{leaf}"


class Uplinks(TypedDict):
    """Leaves, and the links above them and pods, in the order of a tree."""

    leaves: Leaves
    n_leaves: int
    bandwidth_bytes_per_s: FloatArray
    latency_s: FloatArray
    tier_index: IntArray


def uplinks_of(leaves: Leaves, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray, per_leaf: int = 1, per_pod: int = 1) -> Uplinks:
    """Return the links of a tree with so many equal ones above each leaf and each pod; cores are the same switches as spines."""
    counts = [2 * leaves.n_leaves * per_leaf if leaves.n_leaves > 1 else 0, 2 * leaves.n_pods * per_pod if leaves.n_pods > 1 else 0]
    bandwidths_bytes_per_s = [
        np.repeat(leaves.leaf_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s) / per_leaf, 2 * per_leaf)[: counts[0]],
        np.repeat(leaves.pod_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s) / per_pod, 2 * per_pod)[: counts[1]],
    ]
    latencies_s = [hop_latency_s(lower, fabric.spine, fabric.cable_latency_s) for lower in (fabric.leaf, fabric.spine)]
    return {
        "leaves": leaves,
        "n_leaves": leaves.n_leaves,
        "bandwidth_bytes_per_s": np.concatenate(bandwidths_bytes_per_s),
        "latency_s": np.repeat(latencies_s, counts),
        "tier_index": np.repeat(np.array([TIERS.index("leaf"), TIERS.index("spine")], dtype=np.int64), counts),
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpineTree(LeafTree):
    """Leaves, spines and core switches with a link for each cable.

    Links count up and down of each cable: by leaf, spine and cable; then by pod, spine, core switch and cable. Spine s of
    every pod reaches the same core switches, which no other spine does.
    """

    cabling: Cabling

    @property
    def n_below_spines(self) -> int:
        """Number of links between leaves and spines."""
        if self.leaves.n_leaves == 1:
            return 0
        return 2 * self.leaves.n_leaves * self.cabling.n_spines * self.cabling.to_spine

    def leaf_classes(self, works: BoolArray) -> IntArray:
        """Return a number for each leaf; different leaves with the same number reach the same others."""
        pods = self.leaves.pod_of(np.arange(self.leaves.n_leaves, dtype=np.int64))
        uplinks = works[: self.n_below_spines].reshape(self.leaves.n_leaves, -1)
        return np.unique(np.column_stack((pods, uplinks)), axis=0, return_inverse=True)[1].reshape(-1)

    def link_name(self, link: int) -> str:
        """Return the name of a link, such as ``leaf0/spine3/up``; parallel cables are numbered: ``leaf0/spine3/up1``."""
        _, parallel, number = self._where(link)
        direction = "down" if link % 2 else "up"
        low, high = self.ends(link - link % 2)
        return f"{low}/{high.rpartition('/')[2]}/{direction}{number if parallel > 1 else ''}"

    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of the two ends of a link."""
        bundle, _, _ = self._where(link)
        n_spines = self.cabling.n_spines
        if link < self.n_below_spines:
            leaf, spine = divmod(bundle, n_spines)
            low, high = f"leaf{leaf}", self._spine_name(leaf // self.leaves.leaves_per_pod, spine)
        else:
            above, core = divmod(bundle, self.cabling.n_cores)
            pod, spine = divmod(above, n_spines)
            low, high = self._spine_name(pod, spine), f"core{spine * self.cabling.n_cores + core}"
        return (high, low) if link % 2 else (low, high)

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return routes of pairs: spread over the spines in proportion to the remaining bandwidth, or hashed to one cable."""
        if self.leaves.n_leaves == 1:
            return RouteRows(
                link_ids=np.zeros((len(sources), 0), dtype=np.int64), weights=None, reached=np.ones(len(sources), dtype=np.bool_)
            )
        if condition.keys is None:
            return self._spread(sources, destinations, left_fraction(condition, len(self.tier_index)))
        if condition.left_fraction is None:
            return self._hashed(sources, destinations, condition.keys)
        return self._hashed_around(sources, destinations, condition.keys, condition.left_fraction > 0.0)

    def _spread(self, sources: IntArray, destinations: IntArray, left: FloatArray) -> RouteRows:
        """Return all paths of each pair, one for each cable up that there is.

        With spread flows parallel cables are laid as one, so that a spine is one path.
        """
        spines = np.arange(self.cabling.n_spines, dtype=np.int64)
        zeros = np.zeros_like(spines)
        steps = [self._leaf_cable(sources[:, None], spines, zeros), self._leaf_cable(destinations[:, None], spines, zeros) + 1]
        if self.leaves.n_pods > 1:
            pods, peer_pods = self.leaves.pod_of(sources), self.leaves.pod_of(destinations)
            cores = (self._core_cable(pods[:, None], spines, zeros), self._core_cable(peer_pods[:, None], spines, zeros) + 1)
            climbs = (pods != peer_pods)[:, None]
            steps[1:1] = [np.where(climbs, core, -1) for core in cores]
        paths = np.stack(steps, axis=2)
        weights = shares(narrowest(paths, left), None, _AT_LEAF)
        paths[weights == 0.0] = -1
        here = sources == destinations
        paths[here] = -1
        n_pairs = len(sources)
        return RouteRows(
            link_ids=paths.reshape(n_pairs, -1),
            weights=np.repeat(weights, len(steps), axis=1).reshape(n_pairs, -1),
            reached=np.logical_or(here, np.any(weights > 0.0, axis=1)),
        )

    def _hashed(self, sources: IntArray, destinations: IntArray, keys: KeyArray) -> RouteRows:
        cabling = self.cabling
        uplinks = picked(keys, _AT_LEAF, cabling.n_spines * cabling.to_spine)
        spines = uplinks // cabling.to_spine
        above = picked(keys, _AT_SPINE, cabling.n_cores * cabling.to_core)
        cores = above // cabling.to_core * cabling.to_core
        chosen = (uplinks % cabling.to_spine, above, cores + picked(keys, _AT_CORE, cabling.to_core), picked(keys, _DOWN, cabling.to_spine))
        return self._path(sources, destinations, spines, chosen, np.ones(len(sources), dtype=np.bool_))

    def _hashed_around(self, sources: IntArray, destinations: IntArray, keys: KeyArray, works: BoolArray) -> RouteRows:
        """Return hashed paths over working cables; a switch skips cables from which the destination is unreachable."""
        cabling, n_pairs = self.cabling, len(keys)
        pods, peer_pods = self.leaves.pod_of(sources), self.leaves.pod_of(destinations)
        below = works[: self.n_below_spines].reshape(-1, cabling.n_spines, cabling.to_spine, 2)
        above = works[self.n_below_spines :].reshape(-1, cabling.n_spines, cabling.n_cores, cabling.to_core, 2)
        open_spines: BoolArray = np.any(below[destinations, :, :, 1], axis=2)
        climbs = self.leaves.n_pods > 1
        if climbs:
            ups: BoolArray = np.any(above[..., 0], axis=3)
            downs: BoolArray = np.any(above[..., 1], axis=3)
            core_open: BoolArray = np.any(ups[:, None] & downs[None], axis=3)
            open_spines = open_spines & ((pods == peer_pods)[:, None] | core_open[pods, peer_pods])
        open_uplinks = (below[sources, :, :, 0] & open_spines[:, :, None]).reshape(n_pairs, -1)
        uplinks = picked_among(keys, _AT_LEAF, open_uplinks)
        spines = uplinks // cabling.to_spine
        up = down = np.zeros(n_pairs, dtype=np.int64)
        if climbs:
            lands: BoolArray = np.any(above[peer_pods, spines, :, :, 1], axis=2)
            up = picked_among(keys, _AT_SPINE, (above[pods, spines, :, :, 0] & lands[:, :, None]).reshape(n_pairs, -1))
            cores = up // cabling.to_core
            down = cores * cabling.to_core + picked_among(keys, _AT_CORE, above[peer_pods, spines, cores, :, 1])
        last = picked_among(keys, _DOWN, below[destinations, spines, :, 1])
        reached: BoolArray = np.any(open_uplinks, axis=1)
        return self._path(sources, destinations, spines, (uplinks % cabling.to_spine, up, down, last), reached)

    def _path(
        self, sources: IntArray, destinations: IntArray, spines: IntArray, cables: tuple[IntArray, ...], reached: BoolArray
    ) -> RouteRows:
        pods, peer_pods = self.leaves.pod_of(sources), self.leaves.pod_of(destinations)
        link_ids = np.stack(
            (
                self._leaf_cable(sources, spines, cables[0]),
                self._core_cable(pods, spines, cables[1]),
                self._core_cable(peer_pods, spines, cables[2]) + 1,
                self._leaf_cable(destinations, spines, cables[3]) + 1,
            ),
            axis=1,
        )
        link_ids[sources == destinations] = -1
        link_ids[pods == peer_pods, 1:3] = -1
        return RouteRows(link_ids=link_ids, weights=None, reached=np.logical_or(reached, sources == destinations))

    def _leaf_cable(self, leaves: IntArray, spines: IntArray, cables: IntArray) -> IntArray:
        return 2 * ((leaves * self.cabling.n_spines + spines) * self.cabling.to_spine + cables)

    def _core_cable(self, pods: IntArray, spines: IntArray, cables: IntArray) -> IntArray:
        per_spine = self.cabling.n_cores * self.cabling.to_core
        return self.n_below_spines + 2 * ((pods * self.cabling.n_spines + spines) * per_spine + cables)

    def _where(self, link: int) -> tuple[int, int, int]:
        """Return the bundle of a link among those of its tier, how many parallel cables it has, and which this is."""
        below = link < self.n_below_spines
        parallel = self.cabling.to_spine if below else self.cabling.to_core
        bundle, number = divmod((link if below else link - self.n_below_spines) // 2, parallel)
        return bundle, parallel, number

    def _spine_name(self, pod: int, spine: int) -> str:
        return f"spine{spine}" if self.leaves.n_pods == 1 else f"pod{pod}/spine{spine}"


def spine_tree(leaves: Leaves, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> SpineTree:
    """Return a tree with single uplinks; with adaptive routing, parallel cables are one link.

    Parameters
    ----------
    adapter_bandwidth_bytes_per_s
        Of the adapters at each leaf, in the mean. All leaves have as many cables as the widest needs.
    """
    cabling = cables_of(leaves, fabric, adapter_bandwidth_bytes_per_s)
    if fabric.routing == "adaptive":
        cabling = Cabling(n_spines=cabling.n_spines, to_spine=1, n_cores=1, to_core=1)
    per_pod = cabling.n_spines * cabling.n_cores * cabling.to_core
    links = uplinks_of(leaves, fabric, adapter_bandwidth_bytes_per_s, cabling.n_spines * cabling.to_spine, per_pod)
    return SpineTree(cabling=cabling, **links)


def cables_of(leaves: Leaves, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> Cabling:
    """Return the number of switches and cables above the leaves, with as few switches as their ports allow.

    A cable is as wide as the narrower port at its ends, and a leaf or spine has as many upwards as the bandwidth upwards of the
    widest takes. They are shared evenly among the switches above, so that the number of these divides that of the cables; it is
    the least for which their ports suffice. A spine below a core has ports down and up in the ratio of the core
    oversubscription. Where even one cable to each does not suffice, the switches above are taken to be large enough.
    """
    leaf_bytes_per_s = leaves.leaf_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s)
    pod_bytes_per_s = leaves.pod_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s)
    uplinks = _cables(float(leaf_bytes_per_s.max()), fabric, of_leaf=True)
    ports_down = float(fabric.spine.n_ports)
    if leaves.n_pods > 1:
        ports_down *= fabric.core_oversubscription / (1.0 + fabric.core_oversubscription)
    n_spines = _fewest(uplinks, leaves.leaves_per_pod * uplinks / ports_down)
    above = _cables(float(pod_bytes_per_s.max()) / n_spines, fabric, of_leaf=False)
    n_cores = _fewest(above, leaves.n_pods * above / fabric.spine.n_ports)
    return Cabling(n_spines=n_spines, to_spine=uplinks // n_spines, n_cores=n_cores, to_core=above // n_cores)


def _cables(bandwidth_bytes_per_s: float, fabric: Fabric, *, of_leaf: bool) -> int:
    ports = [fabric.spine.port_bandwidth_bytes_per_s] + ([fabric.leaf.port_bandwidth_bytes_per_s] if of_leaf else [])
    return max(1, ceil(bandwidth_bytes_per_s / min(ports) * (1.0 - 1e-9)))


def _fewest(n_cables: int, at_least: float) -> int:
    return next((count for count in range(1, n_cables) if n_cables % count == 0 and count >= at_least * (1.0 - 1e-9)), n_cables)
