"""Wires of one node, before the node has a number, and meshes of them between its accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clustersim.errors import DomainError
from clustersim.hardware.models import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One direction of a connection that every node of the cluster has.

    ``tail`` and ``head`` are where it begins and ends: templates over the names of the node or server (``{node}``),
    of its scale-up domain (``{domain}``) and of the leaves that its adapters hang at (``{leaves[0]}``).
    """

    name: str
    tier: str
    tail: str
    head: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpWiring:
    """Wires and paths between the accelerators of one node without PCIe."""

    wires: tuple[Wire, ...] = ()
    paths: Mapping[tuple[int, int], tuple[str, ...]] = field(default_factory=dict[tuple[int, int], tuple[str, ...]])
    """Wire names from one accelerator to another; a pair that is missing goes over PCIe."""
    ports: tuple[tuple[str, str], ...] = ()
    """Each accelerator's wires to and from a switch that may span nodes; empty without such a switch."""


def accelerator_end(index: int) -> str:
    """Return the template of an accelerator's name."""
    return f"{{node}}/gpu{index}"


def scale_up_bandwidth_bytes_per_s(node: Node) -> float:
    """Return what all links of one accelerator move together, one direction.

    Raises
    ------
    DomainError
        The accelerator has no such links, so the node cannot be wired as its profile says.
    """
    accelerator = node.accelerator
    if accelerator.scale_up_bandwidth_bytes_per_s <= 0 or accelerator.scale_up_links < 1:
        raise DomainError(
            f"{accelerator.name} has no scale-up links, but {node.name} wires them as {node.scale_up.kind}",
            path=("accelerator",),
            hint="give it 'scale_up: {bandwidth: ...}', choose one that has them, or scale-up kind pcie",
        )
    return accelerator.scale_up_bandwidth_bytes_per_s


LinkCounts = Sequence[Sequence[int]]
"""Links between each two accelerators; symmetric, zero on the diagonal."""


def wire_mesh(node: Node, counts: LinkCounts) -> ScaleUpWiring:
    """Return the wires and paths of a mesh with a number of links between each two accelerators.

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
