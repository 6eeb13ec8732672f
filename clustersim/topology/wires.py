"""The wires of one node, before the node has a number."""

from __future__ import annotations

from collections.abc import Mapping
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
            hint="choose an accelerator that has them, or scale-up kind pcie",
        )
    return accelerator.scale_up_bandwidth_bytes_per_s
