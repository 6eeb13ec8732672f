"""One node as a list of wires, and its routes as tables over its accelerators and its host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology import SCALE_UP
from clustersim.topology.cluster import IntArray
from clustersim.topology.scale_out import hop_latency_s
from clustersim.topology.wires import (
    ScaleUpWiring,
    Wire,
    n_pcie_switches,
    path_between_switches,
    pcie_wires,
    socket_end,
    switch_end,
)

NO_WAY = -1
"""Length of a route that does not exist."""
BY_PEER = -1
"""Adapter of an endpoint that uses a different adapter for each peer, as a host does."""

Path = tuple[str, ...]
"""Names of wires, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Routes inside a node between its endpoints: its accelerators in order, then the memory of its host.

    Keys that are missing are ways that do not exist.
    """

    n_endpoints: int
    inside: Mapping[tuple[int, int], Path]
    """From endpoint to endpoint."""
    outward: Mapping[tuple[int, int], Path]
    """(endpoint, adapter): from the endpoint to the leaf of the adapter."""
    inward: Mapping[tuple[int, int], Path]
    """(endpoint, adapter): from the leaf of the adapter to the endpoint."""
    to_switch: Mapping[tuple[int, int], Path]
    """(endpoint, accelerator): from the endpoint to a switch that may span nodes, by the port of the accelerator."""
    from_switch: Mapping[tuple[int, int], Path]
    """(endpoint, accelerator): from that switch to the endpoint, by the port of the accelerator."""
    adapter_of: tuple[int, ...]
    """The adapter of each endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathTable:
    """Ways of one sort in places of several kinds."""

    wires: IntArray
    """Shape (n_kinds, n_endpoints, n_columns, width): wire numbers in order, filled up with -1."""
    lengths: IntArray
    """Number of wires of each route, shape (n_kinds, n_endpoints, n_columns); ``NO_WAY`` where there is none."""

    def places_of(self, kinds: IntArray, endpoints: IntArray, columns: IntArray) -> IntArray:
        """Return the index of each route in a flat numbering."""
        n_kinds, n_endpoints, n_columns = self.lengths.shape
        rows = endpoints if n_kinds == 1 else kinds * n_endpoints + endpoints
        return rows * n_columns + columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """Paths of one or several kinds of places (nodes as built, servers, nodes with broken wires) as arrays.

    The columns are endpoints, or adapters, or accelerators.
    """

    inside: PathTable
    outward: PathTable
    inward: PathTable
    to_switch: PathTable
    from_switch: PathTable
    adapter_of: IntArray
    """Shape (n_kinds, n_endpoints)."""

    @property
    def n_endpoints(self) -> int:
        """Endpoints of the kind with most."""
        return self.adapter_of.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeWiring:
    """The wires of a node, numbered by their place, and the routes over them."""

    wires: tuple[Wire, ...]
    paths: Paths
    ports: tuple[tuple[int, int], ...]
    """Each accelerator's wires up to and down from a switch that may span nodes; empty without one."""
    n_adapters: int

    def number_of(self, name: str) -> int:
        """Return the number of a wire."""
        return next(number for number, wire in enumerate(self.wires) if wire.name == name)


def n_adapters(node: Node) -> int:
    """Return how many adapters a node shows to the fabric: the spare NICs of an accelerator form one bundle with its first."""
    return min(node.n_nics, node.n_accelerators)


def adapter_bandwidth_bytes_per_s(node: Node) -> float:
    """Return the bandwidth of one adapter, one direction: of all NICs in its bundle.

    NICs that are left over when they do not divide among the accelerators carry storage and management, not ranks.
    """
    return node.nic.bandwidth_bytes_per_s * max(1, node.n_nics // node.n_accelerators)


def adapter_of_accelerator(node: Node) -> IntArray:
    """Return the adapter of each accelerator: adapters are shared evenly, in order."""
    return np.arange(node.n_accelerators, dtype=np.int64) * n_adapters(node) // node.n_accelerators


def wire_node(node: Node, fabric: Fabric | None) -> NodeWiring:
    """Return the wires of a node and the routes over them; without a fabric its adapters are left out."""
    scale_up = SCALE_UP[node.scale_up.kind](node)
    accelerators = range(node.n_accelerators)
    pcie_in_domain = any(a != b and (a, b) not in scale_up.paths for a in accelerators for b in accelerators)
    # Where PCIe joins the domain, the domain's latency lies on it: half where it is entered, half where it is left.
    pcie_latency_s = node.scale_up.latency_s / 2 if pcie_in_domain else 0.0
    wires = scale_up.wires + pcie_wires(node, pcie_latency_s)
    if fabric is not None:
        wires += _adapter_wires(node, fabric, pcie_latency_s)
    numbers = {wire.name: number for number, wire in enumerate(wires)}
    return NodeWiring(
        wires=wires,
        paths=_paths(node, scale_up, n_adapters(node) if fabric else 0),
        ports=tuple((numbers[up], numbers[down]) for up, down in scale_up.ports),
        n_adapters=n_adapters(node),
    )


def wire_server(servers: ServerHosts, fabric: Fabric) -> NodeWiring:
    """Return the wires of a dedicated host: its adapters, each at one of its sockets, evenly and in order.

    Its memory is that of all sockets together, so that nothing crosses between them. Only its host is an endpoint; it
    stands in the tables at the place that the caller gives it.
    """
    latency_s = servers.nic.latency_s + hop_latency_s(None, fabric.leaf, fabric.cable_latency_s)
    wires: list[Wire] = []
    for adapter in range(servers.n_nics):
        below = socket_end(adapter * servers.host.n_sockets // servers.n_nics)
        wires.extend(_adapter_pair(adapter, below, servers.nic.bandwidth_bytes_per_s, latency_s))
    adapters = range(servers.n_nics)
    paths = Paths(
        n_endpoints=1,
        inside={(0, 0): ()},
        outward={(0, adapter): (f"nic{adapter}/tx",) for adapter in adapters},
        inward={(0, adapter): (f"nic{adapter}/rx",) for adapter in adapters},
        to_switch={},
        from_switch={},
        adapter_of=(BY_PEER,),
    )
    return NodeWiring(wires=tuple(wires), paths=paths, ports=(), n_adapters=servers.n_nics)


def tables(kinds: Sequence[tuple[NodeWiring, Paths]], *, n_endpoints: int) -> Tables:
    """Return the paths of several kinds of places in one set of arrays.

    Parameters
    ----------
    kinds
        The wires that the paths of each kind name, and the paths. The host of each is the last endpoint, whatever accelerators there are.
    n_endpoints
        Of the kind with most.
    """
    numbers = [{wire.name: number for number, wire in enumerate(wiring.wires)} for wiring, _ in kinds]
    all_paths = [paths for _, paths in kinds]
    n_adapters = max(wiring.n_adapters for wiring, _ in kinds)

    def number_of(paths: Paths, endpoint: int) -> int:
        return n_endpoints - 1 if endpoint == paths.n_endpoints - 1 else endpoint

    def table(columns: int, pick: Sequence[Mapping[tuple[int, int], Path]], *, square: bool = False) -> PathTable:
        width = max(1, max((len(path) for paths in pick for path in paths.values()), default=0))
        rows = np.full((len(kinds), n_endpoints, columns, width), -1, dtype=np.int64)
        lengths = np.full((len(kinds), n_endpoints, columns), NO_WAY, dtype=np.int64)
        for kind, paths in enumerate(pick):
            whole = all_paths[kind]
            for (endpoint, column), path in paths.items():
                at = kind, number_of(whole, endpoint), number_of(whole, column) if square else column
                rows[at][: len(path)] = [numbers[kind][name] for name in path]
                lengths[at] = len(path)
        return PathTable(wires=rows, lengths=lengths)

    adapter_of = np.full((len(kinds), n_endpoints), BY_PEER, dtype=np.int64)
    for kind, paths in enumerate(all_paths):
        for endpoint, adapter in enumerate(paths.adapter_of):
            adapter_of[kind, number_of(paths, endpoint)] = adapter
    return Tables(
        inside=table(n_endpoints, [paths.inside for paths in all_paths], square=True),
        outward=table(n_adapters, [paths.outward for paths in all_paths]),
        inward=table(n_adapters, [paths.inward for paths in all_paths]),
        to_switch=table(n_endpoints, [paths.to_switch for paths in all_paths]),
        from_switch=table(n_endpoints, [paths.from_switch for paths in all_paths]),
        adapter_of=adapter_of,
    )


def _adapter_wires(node: Node, fabric: Fabric, pcie_latency_s: float) -> tuple[Wire, ...]:
    """Return the links between adapters and leaves, in both directions.

    A NIC's latency includes its PCIe path. What already lies on the accelerator's PCIe wires is not counted again.
    """
    latency_s = max(0.0, node.nic.latency_s - pcie_latency_s) + hop_latency_s(None, fabric.leaf, fabric.cable_latency_s)
    wires: list[Wire] = []
    for adapter in range(n_adapters(node)):
        below = switch_end(_switch_of_adapter(node, adapter))
        wires.extend(_adapter_pair(adapter, below, adapter_bandwidth_bytes_per_s(node), latency_s))
    return tuple(wires)


def _adapter_pair(adapter: int, below: str, bandwidth_bytes_per_s: float, latency_s: float) -> tuple[Wire, ...]:
    leaf = f"{{leaves[{adapter}]}}"
    return tuple(
        Wire(
            name=f"nic{adapter}/{direction}",
            tier="nic",
            tail=tail,
            head=head,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            latency_s=latency_s,
        )
        for direction, tail, head in (("tx", below, leaf), ("rx", leaf, below))
    )


def _switch_of_adapter(node: Node, adapter: int) -> int:
    return adapter * n_pcie_switches(node) // n_adapters(node)


def _paths(node: Node, scale_up: ScaleUpWiring, n_adapters: int) -> Paths:
    host, below = node.n_accelerators, node.accelerators_per_pcie_switch
    # Up and down the accelerator's own PCIe link, and the switch that it hangs at; the host hangs at every socket.
    ups: list[Path] = [(f"gpu{a}/pcie/up",) for a in range(host)]
    downs: list[Path] = [(f"gpu{a}/pcie/down",) for a in range(host)]

    def to_switch(endpoint: int, switch: int) -> Path:
        if endpoint == host:
            return (f"pcie{switch}/down",)
        return (*ups[endpoint], *path_between_switches(node, endpoint // below, switch))

    def from_switch(endpoint: int, switch: int) -> Path:
        if endpoint == host:
            return (f"pcie{switch}/up",)
        return (*path_between_switches(node, switch, endpoint // below), *downs[endpoint])

    endpoints = range(host + 1)
    inside: dict[tuple[int, int], Path] = {(host, host): ()}
    for a in range(host):
        inside[a, host] = (*ups[a], f"pcie{a // below}/up")
        inside[host, a] = (f"pcie{a // below}/down", *downs[a])
        for b in range(host):
            straight = () if a == b else scale_up.paths.get((a, b))
            inside[a, b] = (*to_switch(a, b // below), *downs[b]) if straight is None else straight
    adapters = [(adapter, _switch_of_adapter(node, adapter)) for adapter in range(n_adapters)]
    ports = list(enumerate(scale_up.ports))
    return Paths(
        n_endpoints=host + 1,
        inside=inside,
        outward={(end, adapter): (*to_switch(end, switch), f"nic{adapter}/tx") for end in endpoints for adapter, switch in adapters},
        inward={(end, adapter): (f"nic{adapter}/rx", *from_switch(end, switch)) for end in endpoints for adapter, switch in adapters},
        to_switch={(end, port): (*inside[end, port], up) for end in endpoints for port, (up, _) in ports if end in (port, host)},
        from_switch={(end, port): (down, *inside[port, end]) for end in endpoints for port, (_, down) in ports if end in (port, host)},
        adapter_of=(*(int(adapter) for adapter in adapter_of_accelerator(node)), BY_PEER),
    )
