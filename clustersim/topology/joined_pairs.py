"""Accelerators joined in pairs, without a switch: what cube mesh, full mesh and bridged pairs have in common."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, Wire, accelerator_end, scale_up_bandwidth_bytes_per_s

LinkCounts = Sequence[Sequence[int]]
"""Links between each two accelerators; symmetric, zero on the diagonal."""


def wire_mesh(node: Node, counts: LinkCounts) -> ScaleUpWiring:
    """Return the wires and paths of a mesh with so many links between each two accelerators.

    Links between the same two accelerators act as one wire of their summed bandwidth. Two that are not neighbours talk
    over the one in between that gives the widest path; the lowest index wins a tie. Where no single one in between
    joins them, they are left to PCIe. Each wire carries the whole latency of the domain, so a relayed path pays it twice.
    """
    ranks = range(node.n_accelerators)
    link_bytes_per_s = scale_up_bandwidth_bytes_per_s(node) / node.accelerator.scale_up_links
    wires = tuple(
        Wire(
            name=_name(a, b),
            tier="nvlink",
            tail=accelerator_end(a),
            head=accelerator_end(b),
            bandwidth_bytes_per_s=counts[a][b] * link_bytes_per_s,
            latency_s=node.scale_up.latency_s,
        )
        for a in ranks
        for b in ranks
        if counts[a][b]
    )
    paths: dict[tuple[int, int], tuple[str, ...]] = {}
    for a in ranks:
        for b in ranks:
            if a == b:
                continue
            if counts[a][b]:
                paths[a, b] = (_name(a, b),)
                continue
            middle = max(ranks, key=lambda between: min(counts[a][between], counts[between][b]))
            if min(counts[a][middle], counts[middle][b]):
                paths[a, b] = (_name(a, middle), _name(middle, b))
    return ScaleUpWiring(wires=wires, paths=paths)


def _name(a: int, b: int) -> str:
    return f"gpu{a}/nvlink/to{b}"
