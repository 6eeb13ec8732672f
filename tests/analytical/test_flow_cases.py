"""Flows on a few links whose finish times follow by hand: the cases that a textbook works through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from clustersim.engine.replay import Clock
from clustersim.network.fluid import FluidNetwork, link_cells
from clustersim.topology.load import Footprint


@dataclass(frozen=True)
class Flow:
    route: str
    """One letter for each link."""
    size_bytes: float
    start_s: float = 0.0


@dataclass(frozen=True)
class Case:
    bandwidth_bytes_per_s: dict[str, float]
    flows: tuple[Flow, ...]
    finish_s: tuple[float, ...]


CASES = {
    # Half of the link each.
    "two flows on one link": Case({"a": 1e9}, (Flow("a", 1e9), Flow("a", 1e9)), (2.0, 2.0)),
    # Max-min fairness is blind to length: the flow over both links has half of each.
    "the parking lot": Case({"a": 1e9, "b": 1e9}, (Flow("ab", 1e9), Flow("a", 1e9), Flow("b", 1e9)), (2.0, 2.0, 2.0)),
    # The long flow is held to 0.5 GB/s by link a; the short one on b takes the other 3.5 GB/s.
    "the parking lot with a wide second link": Case(
        {"a": 1e9, "b": 4e9}, (Flow("ab", 1e9), Flow("a", 1e9), Flow("b", 1e9)), (2.0, 2.0, 2.0 / 7.0)
    ),
    # 2 s at half the bandwidth, then 2 GB alone.
    "a short flow beside a long one": Case({"a": 1e9}, (Flow("a", 1e9), Flow("a", 3e9)), (2.0, 4.0)),
    # 1 s alone, then 1 GB left of each at half the bandwidth.
    "a flow that starts later": Case({"a": 1e9}, (Flow("a", 2e9), Flow("a", 1e9, 1.0)), (3.0, 3.0)),
    # Levels 0.5 (link a), 1.5 (the rest of b), 8.5 (the rest of c).
    "three bottlenecks in a row": Case(
        {"a": 1e9, "b": 2e9, "c": 10e9},
        (Flow("a", 0.5e9), Flow("ab", 0.5e9), Flow("bc", 1.5e9), Flow("c", 8.5e9)),
        (1.0, 1.0, 1.0, 1.0),
    ),
    # The second departs at 2 s, having had 0.5; the first then has 1 GB left and the whole link.
    "what departs leaves its share to the rest": Case({"a": 1e9}, (Flow("a", 2e9), Flow("a", 1e9)), (3.0, 2.0)),
}


def finish_times_s(case: Case) -> list[float]:
    names = list(case.bandwidth_bytes_per_s)
    routes = list(dict.fromkeys(flow.route for flow in case.flows))
    footprints = [
        Footprint(link_ids=np.array([names.index(link) for link in route], dtype=np.int64), flows=np.ones(len(route))) for route in routes
    ]
    capacity = np.array(list(case.bandwidth_bytes_per_s.values()))
    clock = Clock(network=FluidNetwork(cells=link_cells(footprints, capacity, np.zeros(len(names)))))
    finished = [float("nan")] * len(case.flows)
    for index, flow in enumerate(case.flows):

        def landed(index: int = index) -> None:
            finished[index] = clock.now_s

        clock.fly(routes.index(flow.route), latency_s=flow.start_s, size_bytes=flow.size_bytes, landed=landed)
    clock.environment.run()
    return finished


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_flows_finish_when_the_textbook_says(case: Case) -> None:
    # Round-off: a handful of additions of times of a few seconds.
    assert finish_times_s(case) == pytest.approx(case.finish_s, rel=1e-12)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_twice_the_bandwidth_takes_half_the_time(case: Case) -> None:
    at_once = [Flow(flow.route, flow.size_bytes, flow.start_s / 2) for flow in case.flows]
    faster = Case({link: 2 * rate for link, rate in case.bandwidth_bytes_per_s.items()}, tuple(at_once), case.finish_s)

    assert finish_times_s(faster) == pytest.approx([time / 2 for time in case.finish_s], rel=1e-12)
