"""KV caches on their way from replicas that compute prompts to those that decode: flows on the links of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.background_traffic import play, prepare_loads
from clustersim.engine.clock import Clock
from clustersim.engine.traffic import CoupledFlow, FlowPhases, Traffic
from clustersim.engine.world import World
from clustersim.network.in_flight import TICK_S
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Background
from clustersim.topology.cluster import TIERS, FloatArray, IntArray

_NOMINAL_BYTES = 2.0**26
"""Size for which the library chooses how to send; caches of prompts are as large or larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLinks:
    """The cluster between two pools of replicas."""

    library: Library
    senders: tuple[tuple[int, ...], ...]
    """Ranks of each replica that computes prompts."""
    receivers: tuple[tuple[int, ...], ...]
    """Ranks of each replica that decodes."""
    bytes_per_token: float
    state_bytes: float = 0.0
    """States of a sequence, whatever its length."""
    n_layers: int = 1
    """Parts in which a cache leaves while its prompt is computed, one behind the other; 1 where it leaves when the prompt is."""
    background: tuple[Background, ...] = ()
    """Loads of others on the same links."""

    def pairs(self, source: int, target: int) -> IntArray:
        """Return which rank sends to which; each pair moves an equal part of a cache."""
        senders, receivers = self.senders[source], self.receivers[target]
        n = max(len(senders), len(receivers))
        return np.array([(senders[i * len(senders) // n], receivers[i * len(receivers) // n]) for i in range(n)], dtype=np.int64)


@dataclass(slots=True)
class CacheTransfers:
    """KV caches in flight, which share links max-min fairly with each other and with the loads of others."""

    links: CacheLinks
    world: World
    """In which time is counted in whole ticks."""
    link_bytes: FloatArray = field(init=False)
    """Bytes that have been sent over each link."""
    _clock: Clock = field(init=False)
    _routes: dict[tuple[int, int], tuple[FlowPhases, int]] = field(default_factory=dict[tuple[int, int], tuple[FlowPhases, int]])
    """Flows of ``_NOMINAL_BYTES`` over each pair of ranks, and the number of pairs, by sending and receiving replica."""

    def __post_init__(self) -> None:
        """Put all routes, and the loads of others, on the network."""
        links = self.links
        capacity = np.asarray(links.library.bandwidth_bytes_per_s, dtype=np.float64)
        network = SharedNetwork(capacity, account=False)
        traffic = Traffic(links.library, network)
        self.link_bytes = np.zeros(len(capacity))
        self._clock = Clock(network, self.world, unit_s=TICK_S)
        for source, target in product(range(len(links.senders)), range(len(links.receivers))):
            pairs = links.pairs(source, target)
            operation = links.library.transfer(f"{source} to {target}", pairs, size_bytes=_NOMINAL_BYTES)
            self._routes[source, target] = traffic.phases_of(operation), len(pairs)
        for load in prepare_loads(links.background, network, capacity):
            self.world.process(play(load, self._clock))

    def send(self, source: int, target: int, size_bytes: float, landed: Callable[[], None]) -> None:
        """Send a part of a cache, and call ``landed`` when the last byte has arrived."""
        phases, n_pairs = self._routes[source, target]
        scale = size_bytes / n_pairs / _NOMINAL_BYTES
        scaled = tuple(
            tuple(CoupledFlow(flow_class=each.flow_class, size_bytes=each.size_bytes * scale, latency_s=each.latency_s) for each in phase)
            for phase in phases
        )
        classes = self._clock.network.flow_classes
        for each in (flow for phase in scaled for flow in phase):
            route_set = classes[each.flow_class].route_set
            self.link_bytes[route_set.link_ids] += route_set.flows * each.size_bytes
        self._clock.perform(scaled, landed)

    def tiers(self, whole_s: float) -> Mapping[str, tuple[float, float, float]]:
        """Return mean and highest use over a time, and bytes, of the links of each tier that caches crossed."""
        cluster = self.links.library.cluster
        capacity = np.asarray(self.links.library.bandwidth_bytes_per_s) * whole_s
        found: dict[str, tuple[float, float, float]] = {}
        for number, tier in enumerate(TIERS):
            used = (np.asarray(cluster.tier_index) == number) & (self.link_bytes > 0.0)
            if used.any():
                moved = self.link_bytes[used]
                found[tier] = float(moved.sum() / capacity[used].sum()), float((moved / capacity[used]).max()), float(moved.sum())
        return found
