"""Scale-up by NVLink bridges over PCIe cards: neighbours in pairs, all others over PCIe."""

from __future__ import annotations

from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, wire_mesh


def bridge_pairs(node: Node) -> ScaleUpWiring:
    """Return a bridge between accelerators 0 and 1, 2 and 3, and so on; the last of an odd number has none."""
    ranks = range(node.n_accelerators)
    n_links = node.accelerator.scale_up_links
    return wire_mesh(node, tuple(tuple(n_links if a != b and a // 2 == b // 2 else 0 for b in ranks) for a in ranks))
