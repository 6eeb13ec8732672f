"""The hardware of a cluster as a scenario would describe it, with nothing left to defaults."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.documents.spots import Data
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.overrides import INLINE_NAME
from clustersim.units.quantity import exact_quantity


def resolved_hardware(kinds: Sequence[tuple[Node, int]], fabric: Fabric, profile: str | None = None) -> dict[str, Data]:
    """Return nodes and fabric as keys of ``cluster``; shipped parts stay named, and their figures are written out.

    Parameters
    ----------
    kinds
        Each kind of node and how many there are; several are written as groups.
    profile
        The shipped cluster that they are from; None where there is none.
    """
    wires = _fabric(fabric)
    if len(kinds) > 1:
        return {"nodes": [_group(node, count) for node, count in kinds], "fabric": wires}
    node, n_nodes = kinds[0]
    if node.name == INLINE_NAME:
        return {"node": {**_node(node), "fabric": wires}, "nodes": n_nodes}
    base: dict[str, Data] = {"node": node.name} if profile is None else {"name": profile}
    return {**base, "nodes": n_nodes, **_node(node), "fabric": wires}


def _group(node: Node, count: int) -> dict[str, Data]:
    if node.name == INLINE_NAME:
        # A node from nothing must name a fabric, also where that of the cluster takes its place.
        return {"node": {**_node(node), "fabric": _fabric(node.fabric)}, "count": count}
    return {"node": node.name, "count": count, **_node(node)}


def _node(node: Node) -> dict[str, Data]:
    nics: dict[str, Data] = {} if node.nic.name == INLINE_NAME else {"model": node.nic.name}
    nics |= {
        "count": node.n_nics,
        "bandwidth": exact_quantity(node.nic.bandwidth_bytes_per_s, "B/s"),
        "latency": exact_quantity(node.nic.latency_s, "s"),
    }
    scale_up: dict[str, Data] = {"kind": node.scale_up.kind, "nodes_per_domain": node.scale_up.nodes_per_domain}
    # An accelerator without links of its own has no bandwidth to state.
    if node.accelerator.scale_up_bandwidth_bytes_per_s > 0:
        scale_up["bandwidth"] = exact_quantity(node.accelerator.scale_up_bandwidth_bytes_per_s, "B/s")
    scale_up |= {
        "latency": exact_quantity(node.scale_up.latency_s, "s"),
        "in_network_reduction": node.scale_up.in_network_reduction,
    }
    figures: dict[str, Data] = {
        "accelerator": node.accelerator.name,
        "accelerators_per_node": node.n_accelerators,
        "nics": nics,
        "scale_up": scale_up,
        "host": node.host.name,
        "accelerators_per_pcie_switch": node.accelerators_per_pcie_switch,
    }
    if node.power_w is not None:
        figures["power"] = exact_quantity(node.power_w, "W")
    return figures


def _fabric(fabric: Fabric) -> dict[str, Data]:
    resolved: dict[str, Data] = {
        "topology": fabric.topology,
        "leaf": fabric.leaf.name,
        "spine": fabric.spine.name,
        "nodes_per_leaf": fabric.nodes_per_leaf,
        "leaves_per_pod": fabric.leaves_per_pod,
        "oversubscription": fabric.oversubscription,
        "core_oversubscription": fabric.core_oversubscription,
        "routing": fabric.routing,
        "cable_latency": exact_quantity(fabric.cable_latency_s, "s"),
        "in_network_reduction": fabric.in_network_reduction,
    }
    if fabric.routing == "ecmp":
        resolved["seed"] = fabric.seed
    if fabric.topology == "torus":
        resolved["dimensions"] = list(fabric.dimensions)
    if fabric.topology == "dragonfly":
        # 0 stands for what the topology gives it.
        parts = {"leaves_per_group": fabric.leaves_per_group, "global_links": fabric.global_links}
        resolved |= {key: count for key, count in parts.items() if count}
    if fabric.link_bandwidth_bytes_per_s is not None:
        resolved["link_bandwidth"] = exact_quantity(fabric.link_bandwidth_bytes_per_s, "B/s")
    return resolved
