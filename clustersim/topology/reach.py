"""Links that are down: detours inside a place, and the check that each rank reaches all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from itertools import groupby

import numpy as np

from clustersim.errors import DomainError
from clustersim.topology.cluster import BoolArray, IntArray
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.names import LinkChange
from clustersim.topology.node_wiring import NodeWiring, Path, Paths
from clustersim.topology.routing import RoutingPolicy, between
from clustersim.topology.wires import Wire, accelerator_end

_MOST_SHOWN = 3
_MOST_RUNS = 6


def check_reach(layout: ClusterLayout, policy: RoutingPolicy, works: BoolArray, changes: Sequence[LinkChange]) -> None:
    """Refuse links that are down and cut some ranks or dedicated servers off from others.

    Parameters
    ----------
    works
        Whether each link of the cluster is up.

    Raises
    ------
    DomainError
        Naming the ranks on both sides, and what is down.

    Notes
    -----
    Places that are broken alike and hang at leaves that reach the same others are alike. Of each class a few are tried, so
    that there are pairs at the same leaf and at different ones, in the same domain and in different ones.
    """
    samples = _samples(layout, works)
    endpoints, classes = _endpoints(layout, samples)
    n = len(endpoints)
    lost = np.zeros((n, n), dtype=np.bool_)
    for index, endpoint in enumerate(endpoints):
        lost[index] = ~between(layout, policy, np.full(n, endpoint, dtype=np.int64), endpoints).reached
    if not lost.any():
        return
    cut = np.zeros((int(classes.max()) + 1,) * 2, dtype=np.bool_)
    np.logical_or.at(cut, (classes[:, None], classes[None, :]), lost | lost.T)
    raise _error(layout, policy, cut, samples, changes)


def _samples(layout: ClusterLayout, works: BoolArray) -> list[tuple[IntArray, IntArray]]:
    """Return for each class of places all its members, and those that are tried."""
    places = np.arange(layout.n_hosts, dtype=np.int64)
    domains = layout.numbering.domain_of
    leaves = _leaves(layout, places)
    columns = [layout.kind_of_place, _domain_classes(layout, domains)]
    if layout.scale_out is not None:
        leaf_classes = layout.scale_out.leaf_classes(works[layout.first_fabric_link : layout.first_memory_link])
        columns.extend(leaf_classes[leaves].T)
    inverse = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
    found: list[tuple[IntArray, IntArray]] = []
    for number in range(int(inverse.max()) + 1):
        members = np.flatnonzero(inverse == number).astype(np.int64)
        first, others = members[0], members[1:]
        same_leaves = np.all(leaves[others] == leaves[first], axis=1)
        same_domain = domains[others] == domains[first]
        tried = [first]
        for alike in (same_leaves, ~same_leaves, same_domain, ~same_domain):
            tried.extend(others[alike][:1])
        found.append((members, np.unique(np.array(tried, dtype=np.int64))))
    return found


def _leaves(layout: ClusterLayout, places: IntArray) -> IntArray:
    """Return the leaves of each place, as of a node; no columns without a fabric."""
    if layout.scale_out is None:
        return np.zeros((len(places), 0), dtype=np.int64)
    rails = np.arange(layout.n_rails, dtype=np.int64)
    return layout.scale_out.leaf_of(places[:, None], rails[None, :]) + np.zeros((len(places), len(rails)), dtype=np.int64)


def _domain_classes(layout: ClusterLayout, domains: IntArray) -> IntArray:
    """Return a class number for each place; domains with equal failures have equal numbers."""
    places = np.arange(layout.n_hosts, dtype=np.int64)
    _, first_of_domain = np.unique(domains, return_index=True)
    # How full a domain is makes no difference: what it lacks is taken to be as built.
    as_built = layout.numbering.group_of[first_of_domain]
    kinds = np.repeat(as_built[:, None], max(group.places_per_domain for group in layout.groups), axis=1)
    kinds[domains, places - first_of_domain[domains]] = layout.kind_of_place
    return np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)[domains]


def _endpoints(layout: ClusterLayout, samples: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Return the endpoints that are tried, and a number for each class of them: its class of places, and its number there."""
    n, numbering = layout.host_number, layout.numbering
    endpoints: list[int] = []
    classes: list[int] = []
    for number, (_, tried) in enumerate(samples):
        for place in tried:
            is_node = bool(place < layout.n_nodes)
            ranks = range(int(numbering.first_rank[place]), int(numbering.first_rank[place + 1]))
            ids = ranks if is_node else (layout.n_ranks + int(place),)
            endpoints.extend(ids)
            classes.extend(number * n + index for index in range(len(ids)))
    return np.array(endpoints, dtype=np.int64), np.array(classes, dtype=np.int64)


def _error(
    layout: ClusterLayout,
    policy: RoutingPolicy,
    cut: BoolArray,
    samples: Sequence[tuple[IntArray, IntArray]],
    changes: Sequence[LinkChange],
) -> DomainError:
    n = layout.host_number
    sizes = np.array([len(samples[number // n][0]) if number < len(samples) * n else 0 for number in range(len(cut))])
    loneliest = int(np.lexsort((np.arange(len(cut)), cut @ sizes))[-1])
    alike = np.flatnonzero(np.all(cut == cut[loneliest], axis=1))
    subject = _members(layout, samples, alike)
    others = np.setdiff1d(_members(layout, samples, np.flatnonzero(cut[loneliest])), subject)
    if not len(others):
        # Everybody is in the same case: name those that the last one can still reach, and who is left.
        last = np.full(len(subject), subject[-1], dtype=np.int64)
        reached = between(layout, policy, last, subject).reached & between(layout, policy, subject, last).reached
        subject, others = subject[reached], subject[~reached]
    down = [(index, change) for index, change in enumerate(changes) if change.state == "down"]
    names = [f"{change.between[0]} and {change.between[1]}" for _, change in down]
    shown = "; ".join(names[:_MOST_SHOWN]) + (f"; and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")
    return DomainError(
        f"{_named(layout, subject)} cannot reach {_named(layout, others)}: no way is left with the links down between {shown}",
        path=("changes", down[-1][0]),
        hint="leave one of them up",
    )


def _members(layout: ClusterLayout, samples: Sequence[tuple[IntArray, IntArray]], classes: IntArray) -> IntArray:
    n = layout.host_number
    found: list[IntArray] = []
    for number in classes:
        places = samples[int(number) // n][0]
        ranks = layout.numbering.first_rank[places] + number % n
        found.append(np.where(places < layout.n_nodes, ranks, layout.n_ranks + places))
    return np.unique(np.concatenate(found))


def _named(layout: ClusterLayout, endpoints: IntArray) -> str:
    ranks = [int(endpoint) for endpoint in endpoints if endpoint < layout.n_ranks]
    servers = [int(endpoint) - layout.n_ranks - layout.n_nodes for endpoint in endpoints if endpoint >= layout.n_ranks]
    parts = [f"{word}{'s' if len(ids) > 1 else ''} {_ranges(ids)}" for word, ids in (("rank", ranks), ("server", servers)) if ids]
    return " and ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short: ``0-7, 9``."""
    runs: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(runs[:_MOST_RUNS]) + (", ..." if len(runs) > _MOST_RUNS else "")


def detoured(wiring: NodeWiring, broken: Collection[int]) -> Paths:
    """Return the routes of a place with broken wires; routes without a broken wire stay.

    A detour takes other NVLink wires, over as many accelerators as it needs, before it takes PCIe; from an accelerator
    with a PCIe link of its own to an adapter it takes PCIe and not the link of a neighbour. Among equally good ways the widest
    wins, then the one with the lowest wire numbers.
    """
    standard, names = wiring.paths, [wire.name for wire in wiring.wires]
    lost = {names[number] for number in broken}
    roads = _Roads(wiring.wires, broken)
    n_accelerators = standard.n_endpoints - 1
    places = [[accelerator_end(index)] for index in range(n_accelerators)] + [roads.sockets]
    switch = next((wiring.wires[up].head for up, _ in wiring.ports), "")
    wires = {wire.name: wire for wire in wiring.wires}

    def mended(paths: Mapping[tuple[int, int], Path], detour: Mapping[tuple[int, int], Path | None]) -> dict[tuple[int, int], Path]:
        found = {key: path if lost.isdisjoint(path) else detour[key] for key, path in paths.items()}
        return {key: path for key, path in found.items() if path is not None}

    def around(paths: Mapping[tuple[int, int], Path]) -> list[tuple[tuple[int, int], Path]]:
        return [(key, path) for key, path in paths.items() if not lost.isdisjoint(path)]

    outward: dict[tuple[int, int], Path | None] = {}
    for (end, adapter), path in around(standard.outward):
        way = None if path[-1] in lost else roads.way(places[end], [wires[path[-1]].tail])
        outward[end, adapter] = None if way is None else (*way, path[-1])
    inward: dict[tuple[int, int], Path | None] = {}
    for (end, adapter), path in around(standard.inward):
        way = None if path[0] in lost else roads.way([wires[path[0]].head], places[end])
        inward[end, adapter] = None if way is None else (path[0], *way)
    out, into = mended(standard.outward, outward), mended(standard.inward, inward)
    return Paths(
        n_endpoints=standard.n_endpoints,
        inside=mended(standard.inside, {(a, b): roads.way(places[a], places[b]) for (a, b), _ in around(standard.inside)}),
        outward=out,
        inward=into,
        to_switch=mended(standard.to_switch, {key: roads.way(places[key[0]], [switch]) for key, _ in around(standard.to_switch)}),
        from_switch=mended(standard.from_switch, {key: roads.way([switch], places[key[0]]) for key, _ in around(standard.from_switch)}),
        adapter_of=tuple(_adapter(end, own, standard, out, into) for end, own in enumerate(standard.adapter_of)),
    )


def _adapter(end: int, own: int, standard: Paths, outward: Mapping[tuple[int, int], Path], inward: Mapping[tuple[int, int], Path]) -> int:
    """Return the adapter of an endpoint: its own if its route is undamaged, otherwise the one with the shortest route."""
    key = end, own
    if own < 0 or (outward.get(key) == standard.outward.get(key) and inward.get(key) == standard.inward.get(key)):
        return own
    usable = [adapter for place, adapter in outward if place == end and (end, adapter) in inward]
    return min(usable, key=lambda adapter: (len(outward[end, adapter]) + len(inward[end, adapter]), adapter != own, adapter), default=own)


class _Roads:
    """The working wires of a place, by their start; adapters are left out, because no route passes through them."""

    def __init__(self, wires: Sequence[Wire], broken: Collection[int]) -> None:
        self._wires = wires
        self._from: dict[str, list[int]] = {}
        for number, wire in enumerate(wires):
            if number not in broken and wire.tier != "nic":
                self._from.setdefault(wire.tail, []).append(number)
        ends = dict.fromkeys(end for wire in wires for end in (wire.tail, wire.head))
        self.sockets = [end for end in ends if "/socket" in end]

    def way(self, sources: Sequence[str], targets: Sequence[str]) -> Path | None:
        """Return the route of least cost from any of some places to any of others; None without any."""
        heap: list[tuple[int, float, tuple[int, ...], str]] = []
        for source in sources:
            heappush(heap, (0, float("-inf"), (), source))
        done: dict[str, None] = {}
        while heap:
            cost, narrowest, path, place = heappop(heap)
            if place in targets:
                return tuple(self._wires[number].name for number in path)
            if place in done:
                continue
            done[place] = None
            for number in self._from.get(place, []):
                wire = self._wires[number]
                # Bandwidth stands negated, so that the widest of equally cheap ways comes first.
                width = max(narrowest, -wire.bandwidth_bytes_per_s)
                heappush(heap, (cost + _cost(wire), width, (*path, number), wire.head))
        return None


def _cost(wire: Wire) -> int:
    """Return what makes PCIe of an accelerator the last resort, and its own still cheaper than that of a neighbour."""
    if wire.tier == "nvlink":
        return 10
    return 100 if wire.name.startswith("gpu") else 1
