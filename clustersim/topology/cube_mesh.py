"""Scale-up of the DGX-1: two fully joined quads, and each accelerator joined to its twin in the other quad."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.errors import DomainError
from clustersim.hardware.models import Node
from clustersim.topology.wires import LinkCounts, ScaleUpWiring, wire_mesh

# P100, four links each: the twelve edges of a cube and the diagonals of two faces; NVIDIA DGX-1 System Architecture, white paper
# WP-08437-001, section 3.1.
_DGX1_P100: Final = (
    (0, 1, 1, 1, 1, 0, 0, 0),
    (1, 0, 1, 1, 0, 1, 0, 0),
    (1, 1, 0, 1, 0, 0, 1, 0),
    (1, 1, 1, 0, 0, 0, 0, 1),
    (1, 0, 0, 0, 0, 1, 1, 1),
    (0, 1, 0, 0, 1, 0, 1, 1),
    (0, 0, 1, 0, 1, 1, 0, 1),
    (0, 0, 0, 1, 1, 1, 1, 0),
)
# V100, six links each: `nvidia-smi topo -m` of a DGX-1, https://www.microway.com/hpc-tech-tips/nvidia-smi_control-your-gpus/, section
# on topology. The topology file in https://github.com/NVIDIA/nccl/issues/671 says the same of the first accelerators.
_DGX1_V100: Final = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)

CUBE_MESH: Final[Mapping[int, LinkCounts]] = MappingProxyType({4: _DGX1_P100, 6: _DGX1_V100})
"""Links between each two accelerators, by the links that one accelerator has."""


def cube_mesh(node: Node) -> ScaleUpWiring:
    """Return the hybrid cube mesh of a DGX-1, or of its first accelerators where the node has fewer than eight.

    Accelerators that are not neighbours are routed over one accelerator in between, by the widest NVLink path; the lowest
    index wins a tie. NCCL would send a lone pair over PCIe instead, but its rings and trees only use neighbours, so this
    route matters to point-to-point transfers alone.

    Raises
    ------
    DomainError
        The accelerator has neither four nor six links, or the node has more than eight accelerators.
    """
    counts = CUBE_MESH.get(node.accelerator.scale_up_links)
    if counts is None:
        raise DomainError(
            f"a cube mesh of {node.accelerator.name} with {node.accelerator.scale_up_links} links each is not known",
            path=("accelerator",),
            hint="the DGX-1 was built with 4 links (P100) and with 6 links (V100)",
        )
    if node.n_accelerators > len(counts):
        raise DomainError(
            f"a cube mesh has {len(counts)} corners, not {node.n_accelerators}",
            path=("n_accelerators",),
            hint=f"use {len(counts)} or fewer",
        )
    return wire_mesh(node, counts)
