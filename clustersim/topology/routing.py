"""Routes between endpoints by arithmetic: tables inside the places, the fabric between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray, LinkFloats, Routes, pair_keys
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.link_demand import ones
from clustersim.topology.node_wiring import BY_PEER, NO_WAY, PathTable
from clustersim.topology.scale_out import RouteRows, RoutingState, ScaleOut

_NEVER: Final = 1 << 20
"""More links than any route has."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingPolicy:
    """Rule for the choice among several paths."""

    seed: int | None
    """Seed of the hash that picks one; None where flows are spread."""
    left_fraction: FloatArray | None = None
    """Share of the bandwidth as built that each link of the fabric has, 0 where it is down; None as long as all are as built."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spots:
    """Places of endpoints."""

    ids: IntArray
    places: IntArray
    endpoints: IntArray
    """Number within the place: an accelerator, or after them the host."""
    kinds: IntArray
    first_wire: IntArray

    def taken(self, chosen: IntArray) -> Spots:
        """Return some of them."""
        if len(chosen) == len(self.ids):  # all of them, in order
            return self
        return Spots(
            ids=self.ids[chosen],
            places=self.places[chosen],
            endpoints=self.endpoints[chosen],
            kinds=self.kinds[chosen],
            first_wire=self.first_wire[chosen],
        )


def between(layout: ClusterLayout, policy: RoutingPolicy, sources: IntArray, destinations: IntArray) -> RouteRows:
    """Return the route of each pair of endpoints.

    What is inside a place or a scale-up domain stays there, and goes over the fabric only where no wire inside is left.
    """
    here, there = _spots(layout, sources), _spots(layout, destinations)
    near = here.places == there.places
    over = (layout.numbering.domain_of[here.places] == layout.numbering.domain_of[there.places]) & ~near
    far = ~(near | over)
    parts: list[tuple[IntArray, RouteRows]] = []
    for chosen, route in ((near, _inside), (over, _over_switch)):
        pairs = np.flatnonzero(chosen)
        if len(pairs):
            rows = route(layout, here.taken(pairs), there.taken(pairs))
            parts.append((pairs, rows))
            if layout.scale_out is not None and not rows.reached.all():
                far[pairs[~rows.reached]] = True
    pairs = np.flatnonzero(far)
    if len(pairs):
        parts.append((pairs, _over_fabric(layout, policy, here.taken(pairs), there.taken(pairs))))
    return _merged(parts, len(sources))


def own_leaf(layout: ClusterLayout, scale_out: ScaleOut, ranks: IntArray) -> IntArray:
    """Return the leaf of the adapter of each rank."""
    spots = _spots(layout, ranks)
    adapters = _adapters_of(layout, spots)
    return scale_out.leaf_of(spots.places, layout.rails_of(spots.places, adapters))


def to_own_leaf(layout: ClusterLayout, ranks: IntArray, *, back: bool) -> RouteRows:
    """Return the route from each rank to its leaf, or back from there."""
    spots = _spots(layout, ranks)
    return _looked_up(layout.tables.inward if back else layout.tables.outward, spots, _adapters_of(layout, spots))


def compressed(rows: RouteRows, link_latency_s: LinkFloats) -> Routes:
    """Return routes in compressed rows; the latency of a pair that is spread is the mean over its paths."""
    n_pairs, width = rows.link_ids.shape
    used = rows.link_ids >= 0
    starts = np.zeros(n_pairs + 1, dtype=np.int64)
    if used.all():
        starts += np.arange(0, n_pairs * width + 1, max(1, width), dtype=np.int64) if width else 0
        link_ids = rows.link_ids.reshape(-1)
        weights = None if rows.weights is None else rows.weights.reshape(-1)
    else:
        for column in used.T:
            starts[1:] += column
        np.cumsum(starts, out=starts)
        link_ids = rows.link_ids[used]
        weights = None if rows.weights is None else rows.weights[used]
    along_s = link_latency_s[rows.link_ids] if rows.weights is None else rows.weights * link_latency_s[rows.link_ids]
    latency_s = np.zeros(n_pairs)
    for column_s in (along_s if len(link_ids) == used.size else np.where(used, along_s, 0.0)).T:
        latency_s += column_s
    return Routes(
        starts=starts,
        link_ids=link_ids,
        weights=ones(len(link_ids)) if weights is None else weights,
        latency_s=latency_s,
    )


def _spots(layout: ClusterLayout, endpoints: IntArray) -> Spots:
    hosts = endpoints >= layout.n_ranks
    if hosts.any():
        ranks = np.minimum(endpoints, layout.n_ranks - 1)
        places = np.where(hosts, endpoints - layout.n_ranks, layout.numbering.place_of_rank[ranks])
        numbers = np.where(hosts, layout.host_number, endpoints - layout.numbering.first_rank[places])
    else:
        places = layout.numbering.place_of_rank[endpoints]
        numbers = endpoints - layout.numbering.first_rank[places]
    first_wire = layout.numbering.first_wire[places]
    return Spots(ids=endpoints, places=places, endpoints=numbers, kinds=layout.kind_of_place[places], first_wire=first_wire)


def _adapters_of(layout: ClusterLayout, spots: Spots) -> IntArray:
    """Return the adapter of each endpoint; ``BY_PEER`` of hosts."""
    table = layout.tables.adapter_of
    return table[0][spots.endpoints] if len(table) == 1 else table[spots.kinds, spots.endpoints]


def _inside(layout: ClusterLayout, here: Spots, there: Spots) -> RouteRows:
    return _looked_up(layout.tables.inside, here, there.endpoints)


def _over_switch(layout: ClusterLayout, here: Spots, there: Spots) -> RouteRows:
    """Return routes over the switch of a domain that spans nodes.

    A host goes by the accelerator with the number of its peer, so that a host that talks to many uses all ports.
    """
    host = layout.host_number
    turn = (here.places + there.places) % layout.numbering.n_accelerators[here.places]
    ports = np.where(here.endpoints < host, here.endpoints, np.where(there.endpoints < host, there.endpoints, turn))
    peer_ports = np.where(there.endpoints < host, there.endpoints, ports)
    up = _looked_up(layout.tables.to_switch, here, ports)
    down = _looked_up(layout.tables.from_switch, there, peer_ports)
    link_ids = np.concatenate((up.link_ids, down.link_ids), axis=1)
    return RouteRows(link_ids=link_ids, weights=None, reached=up.reached & down.reached)


def _over_fabric(layout: ClusterLayout, policy: RoutingPolicy, here: Spots, there: Spots) -> RouteRows:
    """Return routes by the adapters of two places.

    A rank has its own adapter. A host uses all of its own: for a peer with an adapter the one on the same rail, and among
    hosts one after the other.
    """
    own, peer = (_adapters_of(layout, spots) for spots in (here, there))
    adapters, peer_adapters = own, peer
    if (own == BY_PEER).any() or (peer == BY_PEER).any():
        turn = (here.places + there.places) % layout.n_rails
        own_rails, peer_rails = layout.rails_of(here.places, own), layout.rails_of(there.places, peer)
        rails = np.where(own >= 0, own_rails, np.where(peer >= 0, peer_rails, turn))
        adapters = np.where(own >= 0, own, layout.adapters_on(here.places, rails, there.places))
        peer_adapters = np.where(peer >= 0, peer, layout.adapters_on(there.places, rails, here.places))
    rows = _by_adapters(layout, policy, (here, there), (adapters, peer_adapters))
    if rows.reached.all():
        return rows
    lost = np.flatnonzero(~rows.reached)
    found = _by_other_adapters(layout, policy, here.taken(lost), there.taken(lost))
    return _merged([(np.arange(len(rows.reached)), rows), (lost, found)], len(rows.reached))


def _by_adapters(layout: ClusterLayout, policy: RoutingPolicy, ends: tuple[Spots, Spots], adapters: tuple[IntArray, IntArray]) -> RouteRows:
    """Return routes by one adapter of each of two places."""
    scale_out = layout.scale_out
    assert scale_out is not None  # pairs of two domains imply a fabric
    here, there = ends
    up = _looked_up(layout.tables.outward, here, adapters[0])
    down = _looked_up(layout.tables.inward, there, adapters[1])
    leaves, peer_leaves = (
        scale_out.leaf_of(spots.places, layout.rails_of(spots.places, chosen)) for spots, chosen in zip(ends, adapters, strict=True)
    )
    keys = None if policy.seed is None else pair_keys(policy.seed, here.ids, there.ids)
    ways = _ways(scale_out, leaves, peer_leaves, RoutingState(keys=keys, left_fraction=policy.left_fraction))
    n_up, n_across, n_down = (part.link_ids.shape[1] for part in (up, ways, down))
    link_ids = np.empty((len(leaves), n_up + n_across + n_down), dtype=np.int64)
    link_ids[:, :n_up], link_ids[:, n_up + n_across :] = up.link_ids, down.link_ids
    across = link_ids[:, n_up : n_up + n_across]
    np.add(ways.link_ids, layout.first_fabric_link, out=across)
    np.copyto(across, -1, where=ways.link_ids < 0)
    weights = None
    if ways.weights is not None:
        weights = np.ones(link_ids.shape)
        weights[:, n_up : n_up + n_across] = ways.weights
    return RouteRows(link_ids=link_ids, weights=weights, reached=up.reached & ways.reached & down.reached)


def _ways(scale_out: ScaleOut, leaves: IntArray, peer_leaves: IntArray, condition: RoutingState) -> RouteRows:
    """Return the routes of pairs across the fabric; by pairs of leaves where only leaves matter and are fewer."""
    n_leaves = scale_out.n_leaves
    if condition.keys is not None or len(leaves) < n_leaves**2:
        return scale_out.ways(leaves, peer_leaves, condition)
    sources, destinations = np.divmod(np.arange(n_leaves**2, dtype=np.int64), n_leaves)
    ways = scale_out.ways(sources, destinations, condition)
    pairs = leaves * n_leaves + peer_leaves
    weights = None if ways.weights is None else ways.weights[pairs]
    return RouteRows(link_ids=ways.link_ids[pairs], weights=weights, reached=ways.reached[pairs])


def _by_other_adapters(layout: ClusterLayout, policy: RoutingPolicy, here: Spots, there: Spots) -> RouteRows:
    """Return routes by whichever adapters work: those with the fewest links to them first, then those with the lowest numbers."""
    out_steps, in_steps = (
        np.where(table.lengths == NO_WAY, _NEVER, table.lengths) for table in (layout.tables.outward, layout.tables.inward)
    )
    steps = out_steps[here.kinds, here.endpoints][:, :, None] + in_steps[there.kinds, there.endpoints][:, None, :]
    n_pairs, n_out, n_in = len(here.ids), out_steps.shape[2], in_steps.shape[2]
    flat = steps.reshape(n_pairs, n_out * n_in)
    order = np.argsort(flat, axis=1, kind="stable")
    nothing = RouteRows(link_ids=np.full((n_pairs, 1), -1, dtype=np.int64), weights=None, reached=np.zeros(n_pairs, dtype=np.bool_))
    parts = [(np.arange(n_pairs, dtype=np.int64), nothing)]
    left = np.arange(n_pairs, dtype=np.int64)
    for turn in range(n_out * n_in):
        choice = order[left, turn]
        left, choice = left[flat[left, choice] < _NEVER], choice[flat[left, choice] < _NEVER]
        if not len(left):
            break
        rows = _by_adapters(layout, policy, (here.taken(left), there.taken(left)), (choice // n_in, choice % n_in))
        parts.append((left, rows))
        left = left[~rows.reached]
    return _merged(parts, n_pairs)


def _looked_up(table: PathTable, spots: Spots, columns: IntArray) -> RouteRows:
    """Return the routes of places from a table of their wires; rows are padded to the longest."""
    places = table.places_of(spots.kinds, spots.endpoints, columns)
    lengths = table.lengths.reshape(-1)[places]
    width = int(lengths.max(initial=0))
    found = table.wires.reshape(-1, table.wires.shape[-1])[:, :width][places]
    wires = found + spots.first_wire[:, None]
    if (lengths != width).any():
        np.copyto(wires, -1, where=found < 0)
    return RouteRows(link_ids=wires, weights=None, reached=lengths != NO_WAY)


def _merged(parts: list[tuple[IntArray, RouteRows]], n_pairs: int) -> RouteRows:
    """Return the rows of all parts at their places; where parts overlap, the later one counts."""
    if len(parts) == 1:  # it covers all pairs, in order
        return parts[0][1]
    width = max((rows.link_ids.shape[1] for _, rows in parts), default=0)
    link_ids = np.full((n_pairs, width), -1, dtype=np.int64)
    reached = np.zeros(n_pairs, dtype=np.bool_)
    weighted = any(rows.weights is not None for _, rows in parts)
    weights = np.ones((n_pairs, width)) if weighted else None
    for places, rows in parts:
        link_ids[places] = -1
        link_ids[places, : rows.link_ids.shape[1]] = rows.link_ids
        reached[places] = rows.reached
        if weights is not None:
            weights[places, : rows.link_ids.shape[1]] = 1.0 if rows.weights is None else rows.weights
    return RouteRows(link_ids=link_ids, weights=weights, reached=reached)
