"""Finish times of flows on links with bandwidth and latency: the network model alone, with its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, fsum, inf, isfinite, log2
from typing import Final

import numpy as np

from clustersim.network.in_flight import LONGEST_S, whole_ticks_s
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.link_demand import RouteSet

INF: Final = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A link with what it carries and how long it takes."""

    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Bytes that go along a route."""

    route: tuple[int, ...]
    """Links, each of them once."""
    size_bytes: float
    start_s: float
    weight: float = 1.0
    """The rate grows as this times the level that is common to all."""
    cap_bytes_per_s: float = INF


def finish_times(links: Sequence[Pipe], flows: Sequence[Flow], *, compiled: bool | None = None) -> list[float]:
    """Return when each flow has moved its last byte, in seconds.

    A flow waits the sum of its links' latencies after its start, then moves its bytes at its max-min fair rate.

    Parameters
    ----------
    compiled
        Whether to compile the inner loops with numba; by default where it is installed and pays.

    Examples
    --------
    Two flows share a link; the shorter one finishes first, and then the other has the link to itself.

    >>> link = Pipe(bandwidth_bytes_per_s=1e9, latency_s=0.0)
    >>> short, long = (Flow(route=(0,), size_bytes=size, start_s=0.0) for size in (1e9, 3e9))
    >>> finish_times([link], [short, long])
    [2.0, 4.0]
    """
    starts_s = [flow.start_s + fsum(links[link].latency_s for link in flow.route) for flow in flows]
    scale = _time_scale(links, flows, starts_s)
    network = SharedNetwork(np.array([link.bandwidth_bytes_per_s / scale for link in links]), account=False, compiled=compiled)
    flow_classes = _flow_classes(network, flows, scale)
    takes_off_s = [whole_ticks_s(start_s * scale) for start_s in starts_s]
    waiting = sorted(range(len(flows)), key=takes_off_s.__getitem__, reverse=True)
    finish_s = [INF] * len(flows)
    while True:
        now_s = min(network.next_end_s(), takes_off_s[waiting[-1]] if waiting else INF)
        if now_s == INF:
            return [time_s / scale for time_s in finish_s]
        network.advance(now_s)
        for index in network.finished():
            finish_s[index] = now_s
        while waiting and takes_off_s[waiting[-1]] <= now_s:
            index = waiting.pop()
            if flows[index].size_bytes > 0.0:
                network.start(index, flow_classes[index], flows[index].size_bytes)
            else:
                finish_s[index] = takes_off_s[index]
        network.share()


def _time_scale(links: Sequence[Pipe], flows: Sequence[Flow], starts_s: Sequence[float]) -> float:
    """Return the power of two that stretches time so that the last flow ends within the longest time in ticks.

    Ticks are then as fine as the file allows. A flow always has a full link on its route or moves at its cap, so it ends at the latest
    after the sum over its links of their load over their bandwidth, and its bytes over its cap.
    """
    load_bytes = [0.0] * len(links)
    for flow in flows:
        for link in flow.route:
            load_bytes[link] += flow.size_bytes
    latest_s = max(
        (
            sum(load_bytes[link] / links[link].bandwidth_bytes_per_s for link in flow.route) + flow.size_bytes / flow.cap_bytes_per_s
            for flow in flows
        ),
        default=0.0,
    ) + max(starts_s, default=0.0)
    return 2.0 ** floor(log2(LONGEST_S / latest_s)) if latest_s > 0.0 and isfinite(latest_s) else 1.0


def _flow_classes(network: SharedNetwork, flows: Sequence[Flow], scale: float) -> list[int]:
    """Return the flow class of each flow; flows with the same route, weight and cap share one."""
    known: dict[tuple[tuple[int, ...], float, float], int] = {}
    flow_classes: list[int] = []
    for flow in flows:
        key = flow.route, flow.weight, flow.cap_bytes_per_s
        if key not in known:
            links = RouteSet(link_ids=np.array(sorted(flow.route), dtype=np.int64), flows=np.ones(len(flow.route)))
            known[key] = network.add_class(links, weight=flow.weight, cap_bytes_per_s=flow.cap_bytes_per_s / scale)
        flow_classes.append(known[key])
    return flow_classes
