"""Scale-up by a link between every two accelerators, as in an MI300X platform."""

from __future__ import annotations

from clustersim.errors import DomainError
from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, wire_mesh


def full_mesh(node: Node) -> ScaleUpWiring:
    """Return one link between every two accelerators.

    Raises
    ------
    DomainError
        An accelerator has fewer links than the node has peers for it.
    """
    ranks = range(node.n_accelerators)
    n_peers = node.n_accelerators - 1
    if node.accelerator.scale_up_links < n_peers:
        raise DomainError(
            f"a full mesh of {node.n_accelerators} needs {n_peers} links on each accelerator; "
            f"{node.accelerator.name} has {node.accelerator.scale_up_links}",
            path=("n_accelerators",),
            hint=f"use {node.accelerator.scale_up_links + 1} or fewer",
        )
    return wire_mesh(node, tuple(tuple(int(a != b) for b in ranks) for a in ranks))
