"""One node as a list of wires, and its routes as tables over its accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clustersim.hardware.models import Fabric, Node
from clustersim.topology import SCALE_UP
from clustersim.topology.cluster import IntArray
from clustersim.topology.fabrics import hop_latency_s
from clustersim.topology.pcie import n_pcie_switches, path_between_switches, pcie_wires, switch_end
from clustersim.topology.wires import ScaleUpWiring, Wire


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeWiring:
    """The wires of a node, numbered by their place, and the routes over them.

    Route tables hold wire numbers in order and are filled up with -1.
    """

    wires: tuple[Wire, ...]
    inside: IntArray
    """Row a * n + b: from accelerator a to accelerator b of the same node."""
    outward: IntArray
    """Row a: from accelerator a to the leaf of its adapter."""
    inward: IntArray
    """Row b: from the leaf to accelerator b."""
    ports: IntArray
    """Row a: up to and down from a switch that may span nodes; no rows without one."""
    adapter_of: IntArray
    """The adapter of each accelerator."""
    n_adapters: int
    pcie_in_domain: bool
    """Whether some accelerators have nothing but PCIe between them."""

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
    """Return the wires and route tables of a node; without a fabric its adapters are left out."""
    scale_up = SCALE_UP[node.scale_up.kind](node)
    pairs = [(a, b) for a in range(node.n_accelerators) for b in range(node.n_accelerators)]
    pcie_in_domain = any(a != b and (a, b) not in scale_up.paths for a, b in pairs)
    # Where PCIe joins the domain, the domain's latency lies on it: half where it is entered, half where it is left.
    pcie_latency_s = node.scale_up.latency_s / 2 if pcie_in_domain else 0.0
    wires = scale_up.wires + pcie_wires(node, pcie_latency_s)
    if fabric is not None:
        wires += _adapter_wires(node, fabric, pcie_latency_s)
    numbers = {wire.name: number for number, wire in enumerate(wires)}
    inside = [_path_inside(node, scale_up, a, b) for a, b in pairs]
    outward = [_path_outward(node, a) if fabric else () for a in range(node.n_accelerators)]
    inward = [_path_inward(node, b) if fabric else () for b in range(node.n_accelerators)]
    return NodeWiring(
        wires=wires,
        inside=_table(inside, numbers),
        outward=_table(outward, numbers),
        inward=_table(inward, numbers),
        ports=_table(scale_up.ports, numbers),
        adapter_of=adapter_of_accelerator(node),
        n_adapters=n_adapters(node),
        pcie_in_domain=pcie_in_domain,
    )


def _adapter_wires(node: Node, fabric: Fabric, pcie_latency_s: float) -> tuple[Wire, ...]:
    """Return both ways between adapters and leaves.

    A NIC's latency includes its PCIe path. What already lies on the accelerator's PCIe wires is not counted again.
    """
    latency_s = max(0.0, node.nic.latency_s - pcie_latency_s) + hop_latency_s(fabric, None, fabric.leaf)
    bandwidth_bytes_per_s = adapter_bandwidth_bytes_per_s(node)
    wires: list[Wire] = []
    for adapter in range(n_adapters(node)):
        below, leaf = switch_end(_switch_of_adapter(node, adapter)), f"leaf{{leaves[{adapter}]}}"
        for direction, tail, head in (("tx", below, leaf), ("rx", leaf, below)):
            wires.append(
                Wire(
                    name=f"nic{adapter}/{direction}",
                    tier="nic",
                    tail=tail,
                    head=head,
                    bandwidth_bytes_per_s=bandwidth_bytes_per_s,
                    latency_s=latency_s,
                )
            )
    return tuple(wires)


def _switch_of_adapter(node: Node, adapter: int) -> int:
    return adapter * n_pcie_switches(node) // n_adapters(node)


def _path_inside(node: Node, scale_up: ScaleUpWiring, a: int, b: int) -> tuple[str, ...]:
    if a == b:
        return ()
    path = scale_up.paths.get((a, b))
    if path is not None:
        return path
    below = node.accelerators_per_pcie_switch
    return (f"gpu{a}/pcie/up", *path_between_switches(node, a // below, b // below), f"gpu{b}/pcie/down")


def _path_outward(node: Node, accelerator: int) -> tuple[str, ...]:
    adapter = int(adapter_of_accelerator(node)[accelerator])
    switch = accelerator // node.accelerators_per_pcie_switch
    between = path_between_switches(node, switch, _switch_of_adapter(node, adapter))
    return (f"gpu{accelerator}/pcie/up", *between, f"nic{adapter}/tx")


def _path_inward(node: Node, accelerator: int) -> tuple[str, ...]:
    adapter = int(adapter_of_accelerator(node)[accelerator])
    switch = accelerator // node.accelerators_per_pcie_switch
    between = path_between_switches(node, _switch_of_adapter(node, adapter), switch)
    return (f"nic{adapter}/rx", *between, f"gpu{accelerator}/pcie/down")


def _table(paths: Sequence[Sequence[str]], numbers: Mapping[str, int]) -> IntArray:
    table = np.full((len(paths), max((len(path) for path in paths), default=0)), -1, dtype=np.int64)
    for row, path in enumerate(paths):
        table[row, : len(path)] = [numbers[name] for name in path]
    return table
