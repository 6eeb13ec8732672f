"""A fabric that is given switch by switch: any graph, with routes along its shortest paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import TIERS, BoolArray, FloatArray, IntArray, KeyArray, picked_among
from clustersim.topology.direct_links import RouterFabric, RouterGraph
from clustersim.topology.scale_out import GRAIN, Below, RouteRows, RoutingState, ScaleOut, hop_latency_s, left_fraction

_FAR: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwitchGraph(RouterFabric):
    """Switches by number, leaves first, and the links between them in both directions."""

    names: tuple[str, ...]
    leaf_of_adapter: IntArray
    """Shape (n_places, n_adapters)."""
    cable: IntArray
    """Number of each link among the parallel ones between its two switches."""

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the switch of each adapter."""
        return self.leaf_of_adapter[places, adapters]

    def leaf_name(self, leaf: int) -> str:
        """Return the name of a switch as the scenario gives it."""
        return self.names[leaf]

    def link_name(self, link: int) -> str:
        """Return the name of a link, such as ``leaf0/spine3`` or ``leaf0/spine3/1``."""
        tail, head = self.ends(link)
        alone = int(np.count_nonzero((self.graph.tails == self.graph.tails[link]) & (self.graph.heads == self.graph.heads[link]))) == 1
        return f"{tail}/{head}" if alone else f"{tail}/{head}/{self.cable[link]}"

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return shortest paths over links that work.

        Every switch spreads what it sends on over the next links in proportion to their bandwidth; or each pair picks one by its hash.
        """
        left_bytes_per_s = left_fraction(condition, len(self.tier_index)) * self.bandwidth_bytes_per_s
        targets, target_of = np.unique(destinations, return_inverse=True)
        distances = self._distances(targets, left_bytes_per_s > 0.0)
        reached = distances[target_of.reshape(-1), sources] < _FAR
        if condition.keys is not None:
            return self._hashed(sources, distances, target_of.reshape(-1), left_bytes_per_s > 0.0, condition.keys, reached)
        return self._spread(sources, distances, target_of.reshape(-1), left_bytes_per_s, reached)

    def _distances(self, targets: IntArray, works: BoolArray) -> IntArray:
        """Return how many links lie between each switch and each target; shape (n_targets, n_switches)."""
        tails, heads = self.graph.tails[works], self.graph.heads[works]
        distances = np.full((len(targets), len(self.names)), _FAR, dtype=np.int64)
        distances[np.arange(len(targets)), targets] = 0
        for row in distances:
            while len(tails):
                nearer = np.full(len(row), _FAR, dtype=np.int64)
                np.minimum.at(nearer, tails, row[heads] + 1)
                if not (nearer < row).any():
                    break
                np.minimum(row, nearer, out=row)
        return distances

    def _spread(self, sources: IntArray, distances: IntArray, target_of: IntArray, left: FloatArray, reached: BoolArray) -> RouteRows:
        rows: list[IntArray] = [np.zeros(0, dtype=np.int64)] * len(sources)
        weights: list[FloatArray] = [np.zeros(0)] * len(sources)
        for target, distance in enumerate(distances):
            pairs = np.flatnonzero((target_of == target) & reached)
            starts, start_of = np.unique(sources[pairs], return_inverse=True)
            share = self._shares(starts, distance, left)
            for pair, start in zip(pairs, start_of.reshape(-1), strict=True):
                rows[pair] = np.flatnonzero(share[start])
                weights[pair] = share[start][rows[pair]]
        width = max((len(row) for row in rows), default=0)
        link_ids, shares = np.full((len(rows), width), -1, dtype=np.int64), np.zeros((len(rows), width))
        for pair, (row, weight) in enumerate(zip(rows, weights, strict=True)):
            link_ids[pair, : len(row)] = row
            shares[pair, : len(row)] = weight
        return RouteRows(link_ids=link_ids, weights=shares, reached=reached)

    def _shares(self, starts: IntArray, distance: IntArray, left: FloatArray) -> FloatArray:
        """Return the share of the bytes of each source on each link towards one switch, given the distances to it."""
        tails, heads = self.graph.tails, self.graph.heads
        forward = (left > 0.0) & (distance[heads] == distance[tails] - 1)
        onward_bytes_per_s = np.bincount(tails[forward], weights=left[forward], minlength=len(self.names))
        at_switch = np.zeros((len(starts), len(self.names)))
        at_switch[np.arange(len(starts)), starts] = 1.0
        share = np.zeros((len(starts), len(tails)))
        for level in range(int(distance[starts].max(initial=0)), 0, -1):
            links = np.flatnonzero(forward & (distance[tails] == level))
            parts = at_switch[:, tails[links]] * (left[links] / onward_bytes_per_s[tails[links]])
            share[:, links] = parts
            np.add.at(at_switch.T, heads[links], parts.T)
        return np.rint(share / GRAIN) * GRAIN

    def _hashed(
        self, sources: IntArray, distances: IntArray, target_of: IntArray, works: BoolArray, keys: KeyArray, reached: BoolArray
    ) -> RouteRows:
        out = self._links_out()
        n_steps = int(distances[target_of, sources][reached].max(initial=0))
        link_ids = np.full((len(sources), n_steps), -1, dtype=np.int64)
        at = sources.copy()
        for step in range(n_steps):
            here = distances[target_of, at]
            links = out[at]
            nearer = distances[target_of[:, None], self.graph.heads[links]] == here[:, None] - 1
            open_links: BoolArray = (links >= 0) & works[links] & nearer & reached[:, None]
            chosen = links[np.arange(len(at)), picked_among(keys, step, open_links)]
            moves = open_links.any(axis=1)
            link_ids[moves, step] = chosen[moves]
            at = np.where(moves, self.graph.heads[chosen], at)
        return RouteRows(link_ids=link_ids, weights=None, reached=reached)

    def _links_out(self) -> IntArray:
        """Return the links out of each switch, filled up with -1."""
        degrees = np.bincount(self.graph.tails, minlength=len(self.names))
        out = np.full((len(self.names), int(degrees.max(initial=1))), -1, dtype=np.int64)
        order = np.argsort(self.graph.tails, kind="stable")
        column = np.arange(len(order)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        out[self.graph.tails[order], column] = order
        return out


def graph(fabric: Fabric, below: Below) -> ScaleOut:
    """Return the fabric whose switches and cables are listed.

    With routing that spreads, parallel cables are laid as one. A cable is as wide as a port of the leaf switch unless the fabric or its
    switch says otherwise.

    Raises
    ------
    DomainError
        No switch is listed, or the adapters of the nodes do not hang at one switch each.
    """
    holding = list(dict.fromkeys(each.switch for each in fabric.graph if each.nodes))
    others = [name for each in fabric.graph for name in (each.switch, *each.to)]
    names = tuple(dict.fromkeys([*holding, *others]))
    if not holding:
        message = "a graph does not say at which switches the nodes hang"
        raise DomainError(message, path=("fabric", "graph"), hint="such as [{switch: leaf0, nodes: [0, 1], to: {spine0: 2}}]")
    number = {name: index for index, name in enumerate(names)}
    tails, heads, cables, widths = _links(fabric, number)
    is_leaf = np.arange(len(names)) < len(holding)
    at_leaf = is_leaf[tails] | is_leaf[heads]
    hops_s = [
        hop_latency_s(fabric.leaf, fabric.spine, fabric.cable_latency_s),
        hop_latency_s(fabric.spine, fabric.spine, fabric.cable_latency_s),
    ]
    return SwitchGraph(
        names=names,
        n_leaves=len(holding),
        leaf_of_adapter=_leaves(fabric, below, number),
        graph=RouterGraph(n_routers=len(names), tails=tails, heads=heads),
        cable=cables,
        bandwidth_bytes_per_s=widths,
        latency_s=np.where(at_leaf, *hops_s),
        tier_index=np.where(at_leaf, TIERS.index("leaf"), TIERS.index("spine")).astype(np.int64),
    )


def _links(fabric: Fabric, number: dict[str, int]) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return tail, head, number among parallel ones and bandwidth of each link."""
    tails: list[int] = []
    heads: list[int] = []
    cables: list[int] = []
    widths: list[float] = []
    for each in fabric.graph:
        one = each.bandwidth_bytes_per_s or fabric.link_bandwidth_bytes_per_s or fabric.leaf.port_bandwidth_bytes_per_s
        for name, count in each.to.items():
            for cable in range(1 if fabric.routing == "adaptive" else count):
                ends = number[each.switch], number[name]
                tails += ends
                heads += reversed(ends)
                cables += [cable, cable]
                widths += [one * (count if fabric.routing == "adaptive" else 1)] * 2
    return np.array(tails, dtype=np.int64), np.array(heads, dtype=np.int64), np.array(cables, dtype=np.int64), np.array(widths)


def _leaves(fabric: Fabric, below: Below, number: dict[str, int]) -> IntArray:
    """Return the switch of each adapter of each node."""
    leaves = np.full((below.n_places, below.n_adapters), -1, dtype=np.int64)
    for index, each in enumerate(fabric.graph):
        adapters = each.adapters or tuple(range(below.n_adapters))
        too_far = next((node for node in each.nodes if node >= below.n_places), None)
        if too_far is not None or max(adapters) >= below.n_adapters:
            what = f"node {too_far} of {below.n_places}" if too_far is not None else f"adapter {max(adapters)} of {below.n_adapters}"
            raise DomainError(f"{each.switch} has {what}; they count from 0", path=("fabric", "graph", index), hint="leave it out")
        spot = np.ix_(each.nodes, adapters)
        if (leaves[spot] >= 0).any():
            raise DomainError(f"an adapter of {each.switch} hangs at another switch too", path=("fabric", "graph", index))
        leaves[spot] = number[each.switch]
    lost = np.argwhere(leaves < 0)
    if len(lost):
        message = f"adapter {lost[0][1]} of node {lost[0][0]} hangs at no switch"
        raise DomainError(message, path=("fabric", "graph"), hint="list each node at the switches of its adapters")
    return leaves
