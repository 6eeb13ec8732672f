"""Small networks for the tests of the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clustersim.network.sharing import SharedNetwork
from clustersim.network.wiring import FlowClass, Wiring, wiring_of
from clustersim.topology.link_demand import RouteSet

INF = float("inf")


def route_set(flows: Mapping[int, float] | Sequence[int]) -> RouteSet:
    """Return a route set from coefficients by link, or from links with one flow each."""
    by_link = flows if isinstance(flows, Mapping) else dict.fromkeys(flows, 1.0)
    links = sorted(by_link)
    return RouteSet(link_ids=np.array(links, dtype=np.int64), flows=np.array([by_link[link] for link in links], dtype=np.float64))


def flow_class(flows: Mapping[int, float] | Sequence[int], weight: float = 1.0, cap: float = INF) -> FlowClass:
    return FlowClass(route_set=route_set(flows), weight=weight, cap_bytes_per_s=cap)


def wiring(flow_classes: Sequence[FlowClass], capacity: Sequence[float], labels: Sequence[int] | None = None) -> Wiring:
    return wiring_of(flow_classes, np.array(capacity, dtype=np.float64), np.array(labels or [0] * len(capacity)))


def leaf_spine(n_hosts: int, capacity: float = 1.0) -> tuple[SharedNetwork, list[int]]:
    """Return a network of hosts, four to a leaf with two spines, and a flow class for every pair."""
    n_leaves, n_spines = n_hosts // 4, 2
    up, down = list(range(n_hosts)), list(range(n_hosts, 2 * n_hosts))
    first = 2 * n_hosts
    network = SharedNetwork(np.full(first + 2 * n_leaves * n_spines, capacity))
    flow_classes: list[int] = []
    for a in range(n_hosts):
        for b in range(n_hosts):
            if a != b:
                spine = (a + b) % n_spines
                way = [first + a // 4 * n_spines + spine, first + (n_leaves + b // 4) * n_spines + spine]
                flow_classes.append(network.add_class(route_set([up[a], down[b], *(way if a // 4 != b // 4 else [])])))
    return network, flow_classes


def finish(shared: SharedNetwork) -> dict[int, float]:
    """Return when each flow in flight lands, to the last."""
    landed_s: dict[int, float] = {}
    while (end_s := shared.next_end_s()) < INF:
        shared.advance(end_s)
        landed_s |= dict.fromkeys(shared.finished(), end_s)
        shared.share()
    return landed_s
