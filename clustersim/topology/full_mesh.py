"""Scale-up by links between every two accelerators, as in an MI300X platform or a node of four GH200."""

from __future__ import annotations

from clustersim.errors import DomainError
from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, wire_mesh


def full_mesh(node: Node) -> ScaleUpWiring:
    """Return equally many links between every two accelerators.

    Raises
    ------
    DomainError
        An accelerator has fewer links than the node has peers for it.
    """
    ranks = range(node.n_accelerators)
    each = node.scale_up.links_per_peer
    needed = each * (node.n_accelerators - 1)
    if node.accelerator.scale_up_links < needed:
        raise DomainError(
            f"a full mesh of {node.n_accelerators} needs {needed} links on each accelerator; "
            f"{node.accelerator.name} has {node.accelerator.scale_up_links}",
            path=("n_accelerators",),
            hint=f"use {node.accelerator.scale_up_links // each + 1} or fewer",
        )
    return wire_mesh(node, tuple(tuple(each * (a != b) for b in ranks) for a in ranks))
