"""The time of an operation by itself: phases one after the other, flows of a phase beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.engine.alone import Alone, Carried, alone, state_of
from clustersim.engine.traffic import CoupledFlow
from clustersim.network.in_flight import TICK_S
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.link_demand import RouteSet

CAPPED, WIDE, NARROW, BOTH = range(4)


def network() -> SharedNetwork:
    """Return two links of 8 and of 2 bytes per second, and flow classes: on the wide one under a cap of 4, on either, and on both."""
    found = SharedNetwork(np.array([8.0, 2.0]))
    for links, cap in (([0], 4.0), ([0], float("inf")), ([1], float("inf")), ([0, 1], float("inf"))):
        found.add_class(RouteSet(link_ids=np.array(links), flows=np.ones(len(links))), cap_bytes_per_s=cap)
    return found


def coupled_flow(flow_class: int, size_bytes: float, latency_s: float = 0.0) -> CoupledFlow:
    return CoupledFlow(flow_class=flow_class, size_bytes=size_bytes, latency_s=latency_s)


def by_itself(*phases: tuple[CoupledFlow, ...]) -> Alone:
    return alone(phases, network())


def seconds(found: Alone) -> dict[tuple[tuple[int, int], ...], float]:
    """Return the seconds of each state."""
    return found.carried.seconds


@pytest.mark.parametrize(("flow_class", "rate"), [(CAPPED, 4.0), (WIDE, 8.0), (NARROW, 2.0), (BOTH, 2.0)])
def test_one_flow_waits_its_latency_and_moves_at_the_rate_of_idle_links(flow_class: int, rate: float) -> None:
    found = by_itself((coupled_flow(flow_class, 16.0, 0.5),))

    assert found.duration_s == 0.5 + 16.0 / rate
    assert found.carried == Carried({((flow_class, 1),): 16.0 / rate}, {flow_class: 16.0})


def test_what_a_cap_leaves_is_for_the_others() -> None:
    found = by_itself((coupled_flow(CAPPED, 8.0), coupled_flow(BOTH, 4.0), coupled_flow(WIDE, 4.0)))

    # The narrow link holds one to 2, and the other two have 3 each, below the cap of 4. After 4/3 s 4 bytes are left behind
    # the cap, at 4 bytes per second beside 4/3 bytes at 2: the last second is the cap's.
    assert found.duration_s == pytest.approx(4 / 3 + 1.0, abs=TICK_S)


def test_a_state_counts_the_flows_of_each_flow_class() -> None:
    assert state_of([3, 1, 3, 2, 3]) == ((1, 1), (2, 1), (3, 3))
