"""The time of an operation by itself: phases one after the other, flows of a phase beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.engine.alone import Alone, Carried, alone, state_of
from clustersim.engine.traffic import CoupledFlow
from clustersim.network.in_flight import TICK_S
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.link_demand import RouteSet

ROUND_OFF = 1e-12
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


def test_a_flow_without_bytes_only_waits() -> None:
    assert by_itself((coupled_flow(WIDE, 0.0, 0.5),)) == Alone(duration_s=0.5, carried=Carried())


def test_nothing_takes_no_time() -> None:
    assert by_itself() == Alone(duration_s=0.0, carried=Carried())


def test_phases_follow_each_other() -> None:
    found = by_itself((coupled_flow(WIDE, 8.0, 0.25),), (coupled_flow(NARROW, 6.0, 0.5),), (coupled_flow(WIDE, 4.0),))

    assert found.duration_s == 0.25 + 1.0 + 0.5 + 3.0 + 0.5
    assert found.carried == Carried({((WIDE, 1),): 1.5, ((NARROW, 1),): 3.0}, {WIDE: 12.0, NARROW: 6.0})


def test_flows_on_links_of_their_own_take_as_long_as_the_longer() -> None:
    found = by_itself((coupled_flow(WIDE, 8.0), coupled_flow(NARROW, 6.0)))

    assert found.duration_s == pytest.approx(3.0, rel=ROUND_OFF)
    assert seconds(found) == {
        ((WIDE, 1), (NARROW, 1)): pytest.approx(1.0, rel=ROUND_OFF),
        ((NARROW, 1),): pytest.approx(2.0, rel=ROUND_OFF),
    }


def test_flows_of_one_phase_share_their_link() -> None:
    found = by_itself((coupled_flow(WIDE, 4.0), coupled_flow(WIDE, 12.0)))

    # Half each until 1 s, then 8 bytes alone.
    assert found.duration_s == pytest.approx(2.0, rel=ROUND_OFF)
    assert seconds(found) == {((WIDE, 2),): pytest.approx(1.0, rel=ROUND_OFF), ((WIDE, 1),): pytest.approx(1.0, rel=ROUND_OFF)}


def test_what_a_cap_leaves_is_for_the_others() -> None:
    found = by_itself((coupled_flow(CAPPED, 8.0), coupled_flow(BOTH, 4.0), coupled_flow(WIDE, 4.0)))

    # The narrow link holds one to 2, and the other two have 3 each, below the cap of 4. After 4/3 s 4 bytes are left behind
    # the cap, at 4 bytes per second beside 4/3 bytes at 2: the last second is the cap's.
    assert found.duration_s == pytest.approx(4 / 3 + 1.0, abs=TICK_S)


def test_a_flow_with_longer_latency_joins_later() -> None:
    found = by_itself((coupled_flow(WIDE, 16.0), coupled_flow(WIDE, 4.0, 1.0)))

    # Alone for 1 s; half of the link each for another; the rest, 4 bytes, alone.
    assert found.duration_s == pytest.approx(2.5, rel=ROUND_OFF)
    assert found.carried == Carried({((WIDE, 1),): 1.5, ((WIDE, 2),): 1.0}, {WIDE: 20.0})


def test_a_phase_waits_for_a_flow_that_starts_after_the_others_have_landed() -> None:
    found = by_itself((coupled_flow(WIDE, 8.0), coupled_flow(WIDE, 8.0, 5.0)))

    assert found.duration_s == pytest.approx(6.0, rel=ROUND_OFF)
    assert seconds(found) == {((WIDE, 1),): pytest.approx(2.0, rel=ROUND_OFF)}


def test_a_phase_lasts_as_long_as_the_latency_of_a_flow_without_bytes() -> None:
    found = by_itself((coupled_flow(WIDE, 8.0), coupled_flow(NARROW, 0.0, 5.0)))

    assert found.duration_s == pytest.approx(5.0, rel=ROUND_OFF)
    assert seconds(found) == {((WIDE, 1),): pytest.approx(1.0, rel=ROUND_OFF)}


def test_a_state_counts_the_flows_of_each_flow_class() -> None:
    assert state_of([3, 1, 3, 2, 3]) == ((1, 1), (2, 1), (3, 3))
