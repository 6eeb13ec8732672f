"""The PCIe tree of a node: accelerators below switches, switches below sockets, links between sockets."""

from __future__ import annotations

from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, Wire, accelerator_end


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


def path_up_from_switch(switch: int) -> tuple[str, ...]:
    """Return the wires from a PCIe switch to the memory of the host, which is that of all sockets together."""
    return (f"pcie{switch}/up",)


def path_down_to_switch(switch: int) -> tuple[str, ...]:
    """Return the wires from the memory of the host to a PCIe switch."""
    return (f"pcie{switch}/down",)


def socket_end(socket: int) -> str:
    """Return the template of a socket's name."""
    return f"{{node}}/socket{socket}"


def _both_ways(name: str, ends: tuple[str, str], bandwidth_bytes_per_s: float, *, latency_s: float = 0.0) -> tuple[Wire, Wire]:
    low, high = ends
    up = Wire(name=f"{name}/up", tier="pcie", tail=low, head=high, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)
    down = Wire(name=f"{name}/down", tier="pcie", tail=high, head=low, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)
    return up, down
