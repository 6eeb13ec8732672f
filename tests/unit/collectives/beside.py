"""The time of a pattern whose flow sets share idle links max-min fairly."""

from __future__ import annotations

from clustersim.collectives.pattern import FlowSet, Pattern
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import load_of

SIZE_BYTES = 1e12
"""A tensor that takes so long that a tick is nothing."""


def flown_s(cluster: Cluster, pattern: Pattern) -> float:
    """Return the time for each byte of the tensor, without latency."""
    return sum(_phase_s(cluster, phase) for phase in pattern.phases)


def busiest_link_s(cluster: Cluster, pattern: Pattern) -> float:
    """Return how long the busiest link is busy, for each byte of the tensor; no sharing beats it."""
    return float((load_of(cluster, pattern) / cluster.bandwidth_bytes_per_s).max())


def _phase_s(cluster: Cluster, phase: tuple[FlowSet, ...]) -> float:
    network = SharedNetwork(cluster.bandwidth_bytes_per_s)
    flow_classes = [network.add_class(flow_set.route_set) for flow_set in phase]
    for flow, (flow_set, flow_class) in enumerate(zip(phase, flow_classes, strict=True)):
        network.start(flow, flow_class, SIZE_BYTES * flow_set.share)
    n_left = len(phase)
    while n_left:
        network.share()
        network.advance(network.next_end_s())
        n_left -= len(network.finished())
    return network.now_s / SIZE_BYTES
