"""A fabric of a scenario from the switches that a file lists: a topology of its name where they are regular, else a graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from clustersim.apps.importing.machine_files import ListedFabric, natural
from clustersim.documents.text import Data
from clustersim.hardware.models import Node
from clustersim.topology.node_wiring import adapter_bandwidth_bytes_per_s, n_adapters
from clustersim.units.quantity import exact_quantity, parse_quantity

_GUESSED: Final = "the file counts no cables: every switch is taken to send up as much as it gets from below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Keys of ``cluster.fabric``."""

    keys: dict[str, Data]
    notes: tuple[str, ...] = ()


def laid_fabric(fabric: ListedFabric, node: Node, n_nodes: int) -> Laid | None:
    """Return the fabric of the first nodes of a file; None without a switch of theirs."""
    number = {name: index for index, name in enumerate(fabric.nodes[:n_nodes])}
    rails = n_adapters(node)
    leaves = {
        name: {host: count for host, count in switch.hosts.items() if host in number}
        for name, switch in sorted(fabric.switches.items(), key=lambda each: natural(each[0]))
    }
    leaves = {name: hosts for name, hosts in leaves.items() if hosts}
    if not leaves or rails == 0:
        return None
    cables = max(sum(hosts.get(host, 0) for hosts in leaves.values()) for host in number)
    if cables == 0:
        return _tree(fabric, leaves, number, node)
    planes = rails // cables if rails % cables == 0 else 1
    notes = (f"the file has {cables} of {rails} adapters of a node: the others are taken to be cabled alike",) if planes > 1 else ()
    regular = _regular(fabric, leaves, adapter_bandwidth_bytes_per_s(node) * cables)
    if regular is not None and (regular[0] == 1 or regular[0] * planes == rails):
        topology = "rail_optimized" if regular[0] * planes == rails > 1 else "leaf_spine"
        return Laid(keys={"topology": topology, **regular[1]}, notes=notes)
    graph: list[Data] = [
        switch for plane in range(planes) for switch in _plane(fabric, leaves, number, plane=plane if planes > 1 else None, cables=cables)
    ]
    return Laid(keys={"topology": "graph", **_width(fabric), "graph": graph}, notes=notes)


def _width(fabric: ListedFabric) -> dict[str, Data]:
    return {} if fabric.bandwidth is None else {"link_bandwidth": fabric.bandwidth}


def _regular(fabric: ListedFabric, leaves: Mapping[str, Mapping[str, int]], node_bytes_per_s: float) -> tuple[int, dict[str, Data]] | None:
    """Return the leaves of a node, nodes below a leaf and oversubscription where all leaves are equal; None otherwise.

    Parameters
    ----------
    node_bytes_per_s
        Bandwidth of the cables of one node.
    """
    shapes = {(len(hosts), *sorted(_cables(fabric, name).items())) for name, hosts in leaves.items()}
    units = Counter(frozenset(hosts) for hosts in leaves.values())
    hosts = [host for unit in units for host in unit]
    if len(shapes) > 1 or len({*units.values()}) > 1 or len(set(hosts)) < len(hosts) or fabric.bandwidth is None:
        return None
    of_a_node = next(iter(units.values()))
    ((n_hosts, *spines),) = shapes
    if any(name in leaves for name, _ in spines) or len({count for _, count in spines}) > 1:
        return None
    n_up = sum(count for _, count in spines)
    if n_up == 0 and len(leaves) > 1:
        return None
    up_bytes_per_s = n_up * parse_quantity(fabric.bandwidth, "B/s")
    down_over_up = n_hosts * node_bytes_per_s / of_a_node / up_bytes_per_s if n_up else 1.0
    return of_a_node, {"nodes_per_leaf": n_hosts, "leaves_per_pod": 0, "oversubscription": max(1.0, down_over_up)}


def _cables(fabric: ListedFabric, name: str) -> dict[str, int]:
    """Return the cables of a switch to others, at whichever end they are listed."""
    found = dict(fabric.switches[name].links)
    for other, switch in fabric.switches.items():
        if name in switch.links:
            found[other] = found.get(other, 0) + switch.links[name]
    return found


def _plane(
    fabric: ListedFabric, leaves: Mapping[str, Mapping[str, int]], number: Mapping[str, int], *, plane: int | None, cables: int
) -> Iterator[dict[str, Data]]:
    """Yield the switches of one plane; the adapters of a node are on its switches in order."""
    names = {name: _name(name, plane) for name in _all_names(fabric)}
    taken = dict.fromkeys(number, 0)
    for name in sorted(names, key=natural):
        switch, by_adapters = fabric.switches.get(name), dict[tuple[int, ...], list[int]]()
        for host, count in sorted(leaves.get(name, {}).items(), key=lambda each: number[each[0]]):
            first = taken[host] + (plane or 0) * cables
            by_adapters.setdefault(tuple(range(first, first + count)), []).append(number[host])
            taken[host] += count
        links: dict[str, Data] = {names[other]: count for other, count in sorted((switch.links if switch else {}).items()) if count}
        for part, (adapters, nodes) in enumerate(by_adapters.items() or [((), [])]):
            keys: dict[str, Data] = {"switch": names[name], "nodes": [*nodes], "adapters": [*adapters], "to": {} if part else links}
            if nodes or links:
                yield {key: value for key, value in keys.items() if value}


def _all_names(fabric: ListedFabric) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*fabric.switches, *(name for switch in fabric.switches.values() for name in switch.links))))


def _name(name: str, plane: int | None = None) -> str:
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].lstrip("._-") or "switch"
    return text if plane is None else f"{text}.plane{plane}"


def _tree(fabric: ListedFabric, leaves: Mapping[str, Mapping[str, int]], number: Mapping[str, int], node: Node) -> Laid:
    """Return a fabric without cable counts: a tree without oversubscription."""
    above = _joined({name: sorted(switch.links) for name, switch in fabric.switches.items()})
    per_leaf = {len(hosts) for hosts in leaves.values()}
    pods = {tuple(above.get(name, ())) for name in leaves}
    per_pod = {sum(tuple(above.get(name, ())) == pod for name in leaves) for pod in pods}
    cores = {tuple(above.get(spine, ())) for pod in pods for spine in pod}
    if len(leaves) == 1:
        return Laid(keys={"topology": "single_switch"}, notes=(_GUESSED,))
    if len(per_leaf) == 1 and len(per_pod) == 1 and len(cores) == 1 and len({*chain(*pods)}) == sum(map(len, pods)) > 0:
        (n_hosts,), (n_leaves,) = per_leaf, per_pod
        if len(pods) == 1:
            return Laid(
                keys={"topology": "leaf_spine", "nodes_per_leaf": n_hosts, "leaves_per_pod": 0, "oversubscription": 1.0}, notes=(_GUESSED,)
            )
        if cores != {()}:
            keys: dict[str, Data] = {"topology": "fat_tree", "nodes_per_leaf": n_hosts, "leaves_per_pod": n_leaves, "oversubscription": 1.0}
            return Laid(keys=keys, notes=(_GUESSED,))
    one = adapter_bandwidth_bytes_per_s(node) * n_adapters(node)
    below = dict.fromkeys(above, 0)
    for name, hosts in leaves.items():
        _add(name, len(hosts), above, below)
    graph: list[Data] = []
    for name in sorted(below, key=natural):
        if below[name]:
            nodes: list[Data] = [number[host] for host in sorted(leaves.get(name, {}), key=lambda each: number[each])]
            links: dict[str, Data] = {_name(other): 1 for other in above[name]}
            switch: dict[str, Data] = {"switch": _name(name), "nodes": nodes, "to": links}
            if links:
                switch["bandwidth"] = exact_quantity(one * below[name] / len(links), "B/s")
            graph.append({key: value for key, value in switch.items() if value})
    return Laid(keys={"topology": "graph", "graph": graph}, notes=(_GUESSED,))


def _joined(above: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the switches above each one; over parts that nothing joins there is one more."""
    parts: dict[str, frozenset[str]] = {name: frozenset([name]) for name in above}
    for name, others in above.items():
        part = parts[name].union(*(parts.get(other, frozenset([other])) for other in others))
        parts |= dict.fromkeys(part, part)
    if len(set(parts.values())) < 2:
        return above
    core = next(name for name in ("core", *(f"core{number}" for number in range(len(above)))) if name not in above)
    return {**{name: others or [core] for name, others in above.items()}, core: []}


def _add(name: str, count: int, above: Mapping[str, list[str]], below: dict[str, int], depth: int = 0) -> None:
    """Add nodes below a switch and all above it."""
    below[name] = below.get(name, 0) + count
    if depth < 8:
        for other in above.get(name, ()):
            _add(other, count, above, below, depth + 1)
