"""Ways inside a place around wires that are broken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from clustersim.topology.node_wiring import NodeWiring, Path, Paths
from clustersim.topology.wires import Wire, accelerator_end


def detoured(wiring: NodeWiring, broken: Collection[int]) -> Paths:
    """Return the ways of a place some of whose wires are broken; those that touch none of them stay.

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
    """Return the adapter that an endpoint uses: its own as long as its ways are whole, then the one with the shortest."""
    key = end, own
    if own < 0 or (outward.get(key) == standard.outward.get(key) and inward.get(key) == standard.inward.get(key)):
        return own
    usable = [adapter for place, adapter in outward if place == end and (end, adapter) in inward]
    return min(usable, key=lambda adapter: (len(outward[end, adapter]) + len(inward[end, adapter]), adapter != own, adapter), default=own)


class _Roads:
    """The wires of a place that work, by where they begin; adapters are left out, because nothing passes through them."""

    def __init__(self, wires: Sequence[Wire], broken: Collection[int]) -> None:
        self._wires = wires
        self._from: dict[str, list[int]] = {}
        for number, wire in enumerate(wires):
            if number not in broken and wire.tier != "nic":
                self._from.setdefault(wire.tail, []).append(number)
        ends = dict.fromkeys(end for wire in wires for end in (wire.tail, wire.head))
        self.sockets = [end for end in ends if "/socket" in end]

    def way(self, sources: Sequence[str], targets: Sequence[str]) -> Path | None:
        """Return the cheapest way from any of some places to any of others; None without any."""
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
