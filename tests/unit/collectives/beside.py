"""The time of a pattern whose waves share idle links max-min fairly."""

from __future__ import annotations

from clustersim.collectives.pattern import Pattern, Wave
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import Cluster
from tests.unit.collectives.execution import load_of

SIZE_BYTES = 1e12
"""A tensor that takes so long that a tick is nothing."""


def flown_s(cluster: Cluster, pattern: Pattern) -> float:
    """Return the time for each byte of the tensor, without latency."""
    return sum(_phase_s(cluster, phase) for phase in pattern.phases)


def busiest_link_s(cluster: Cluster, pattern: Pattern) -> float:
    """Return how long the busiest link is busy, for each byte of the tensor; no sharing beats it."""
    return float((load_of(cluster, pattern) / cluster.bandwidth_bytes_per_s).max())


def _phase_s(cluster: Cluster, phase: tuple[Wave, ...]) -> float:
    network = SharedNetwork(cluster.bandwidth_bytes_per_s)
    flow_classes = [network.add_class(wave.footprint) for wave in phase]
    for flow, (wave, flow_class) in enumerate(zip(phase, flow_classes, strict=True)):
        network.start(flow, flow_class, SIZE_BYTES * wave.share)
    n_left = len(phase)
    while n_left:
        network.share()
        network.advance(network.next_end_s())
        n_left -= len(network.finished())
    return network.now_s / SIZE_BYTES
