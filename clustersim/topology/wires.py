"""Wires of one node, before the node has a number: its PCIe tree, and its scale-up by switch, mesh, cube mesh or bridges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

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


def bridge_pairs(node: Node) -> ScaleUpWiring:
    """Return a bridge between accelerators 0 and 1, 2 and 3, and so on; the last of an odd number has none."""
    ranks = range(node.n_accelerators)
    n_links = node.accelerator.scale_up_links
    return wire_mesh(node, tuple(tuple(n_links if a != b and a // 2 == b // 2 else 0 for b in ranks) for a in ranks))


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


def nvswitch(node: Node) -> ScaleUpWiring:
    """Return the wires between the accelerators and the switch of their domain.

    All NVSwitch chips of a domain act as one: an accelerator spreads its traffic over all of them, and each chip has a
    port for every accelerator. Half of the domain's latency lies on the way up and half on the way down. The domain may
    span nodes, as in an NVL72 rack.
    """
    bandwidth_bytes_per_s = scale_up_bandwidth_bytes_per_s(node)
    switch = "{domain}/nvswitch"
    wires: list[Wire] = []
    for index in range(node.n_accelerators):
        here = accelerator_end(index)
        for direction, tail, head in (("up", here, switch), ("down", switch, here)):
            wires.append(
                Wire(
                    name=f"gpu{index}/nvlink/{direction}",
                    tier="nvlink",
                    tail=tail,
                    head=head,
                    bandwidth_bytes_per_s=bandwidth_bytes_per_s,
                    latency_s=node.scale_up.latency_s / 2,
                )
            )
    ports = tuple((f"gpu{index}/nvlink/up", f"gpu{index}/nvlink/down") for index in range(node.n_accelerators))
    ranks = range(node.n_accelerators)
    paths = {(a, b): (ports[a][0], ports[b][1]) for a in ranks for b in ranks if a != b}
    return ScaleUpWiring(wires=tuple(wires), paths=paths, ports=ports)


def no_scale_up(node: Node) -> ScaleUpWiring:  # noqa: ARG001  the signature of every row of SCALE_UP
    """Return no wires: the accelerators reach each other over PCIe."""
    return ScaleUpWiring()


def n_pcie_switches(node: Node) -> int:
    """Return the number of PCIe switches of one node."""
    return -(-node.n_accelerators // node.accelerators_per_pcie_switch)


def socket_of_switch(node: Node, switch: int) -> int:
    """Return the socket of a PCIe switch; switches are spread over sockets evenly, in order."""
    return switch * node.host.n_sockets // n_pcie_switches(node)


def pcie_wires(node: Node, accelerator_latency_s: float) -> tuple[Wire, ...]:
    """Return the PCIe tree: links up and down for each accelerator and switch, and links between sockets in both directions.

    A switch has one slot's width towards its socket, so accelerators that share a switch share that way. Only the
    accelerators' own wires carry latency.
    """
    width_bytes_per_s = node.accelerator.pcie_bandwidth_bytes_per_s
    wires: list[Wire] = []
    for index in range(node.n_accelerators):
        ends = (accelerator_end(index), switch_end(index // node.accelerators_per_pcie_switch))
        wires.extend(_both_ways(f"gpu{index}/pcie", ends, width_bytes_per_s, latency_s=accelerator_latency_s))
    for switch in range(n_pcie_switches(node)):
        ends = (switch_end(switch), socket_end(socket_of_switch(node, switch)))
        wires.extend(_both_ways(f"pcie{switch}", ends, width_bytes_per_s))
    wires.extend(
        Wire(
            name=f"socket{a}/to{b}",
            tier="socket",
            tail=socket_end(a),
            head=socket_end(b),
            bandwidth_bytes_per_s=node.host.socket_bandwidth_bytes_per_s,
        )
        for a in range(node.host.n_sockets)
        for b in range(node.host.n_sockets)
        if a != b
    )
    return tuple(wires)


def path_between_switches(node: Node, source: int, destination: int) -> tuple[str, ...]:
    """Return the wires from one PCIe switch to another: none within a switch, no socket link within a socket."""
    if source == destination:
        return ()
    a, b = socket_of_switch(node, source), socket_of_switch(node, destination)
    across = () if a == b else (f"socket{a}/to{b}",)
    return (f"pcie{source}/up", *across, f"pcie{destination}/down")


def switch_end(switch: int) -> str:
    """Return the template of a PCIe switch's name."""
    return f"{{node}}/pcie{switch}"


def socket_end(socket: int) -> str:
    """Return the template of a socket's name."""
    return f"{{node}}/socket{socket}"


def _both_ways(name: str, ends: tuple[str, str], bandwidth_bytes_per_s: float, *, latency_s: float = 0.0) -> tuple[Wire, Wire]:
    low, high = ends
    up = Wire(name=f"{name}/up", tier="pcie", tail=low, head=high, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)
    down = Wire(name=f"{name}/down", tier="pcie", tail=high, head=low, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)
    return up, down
