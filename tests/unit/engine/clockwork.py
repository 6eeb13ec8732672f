"""A clock over one link, and what is put on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustersim.engine.clock import Clock
from clustersim.engine.traffic import CoupledFlow
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.link_demand import RouteSet


class CountingNetwork(SharedNetwork):
    """A network that counts how often it is solved."""

    n_solved = 0

    def share(self) -> None:
        self.n_solved += 1
        super().share()


def one_link(n_flow_classes: int = 1, capacity: float = 8.0) -> CountingNetwork:
    """Return a network of one link; flow classes with different caps, which hold nobody back, are told apart."""
    network = CountingNetwork(np.array([capacity]))
    for flow_class in range(n_flow_classes):
        network.add_class(RouteSet(link_ids=np.array([0]), flows=np.array([1.0])), cap_bytes_per_s=1e6 + flow_class)
    return network


def coupled_flow(size_bytes: float, latency_s: float = 0.0, flow_class: int = 0) -> CoupledFlow:
    return CoupledFlow(flow_class=flow_class, size_bytes=size_bytes, latency_s=latency_s)


def fly(clock: Clock, landed: Callable[[], None], size_bytes: float, *, latency_s: float = 0.0, flow_class: int = 0) -> None:
    """Put one flow on the network."""
    clock.perform(((coupled_flow(size_bytes, latency_s, flow_class),),), landed)


def said(clock: Clock, log: list[tuple[str, float]], word: str) -> Callable[[], None]:
    return lambda: log.append((word, clock.now_s))
