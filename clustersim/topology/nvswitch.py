"""Scale-up by switch: each accelerator has one link up and one down, at full bandwidth to any other."""

from __future__ import annotations

from clustersim.hardware.models import Node
from clustersim.topology.wires import ScaleUpWiring, Wire, accelerator_end, scale_up_bandwidth_bytes_per_s


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
