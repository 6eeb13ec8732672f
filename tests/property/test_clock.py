"""Flows that come and go on shared links, through the clock of the replay: nothing is lost, nothing is gained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustersim.engine.alone import alone
from clustersim.engine.clock import Clock
from clustersim.engine.link_use import link_classes_of
from clustersim.engine.traffic import CoupledFlow, FlowPhases
from clustersim.network.in_flight import TICK_S, whole_ticks_s
from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import FloatArray
from clustersim.topology.link_demand import RouteSet

ROUND_OFF = 1e-9
"""Every start and end rounds the bytes left and the time once; there are at most a few dozen."""
TICKS_S = 8 * TICK_S
"""Half a tick for each change of a rate, which are as many as arrivals and landings."""


@dataclass(frozen=True)
class Arrival:
    at_s: float
    flow_class: int
    size_bytes: float


@dataclass(frozen=True)
class Story:
    flows: FloatArray
    """Shape (n_links, n_flow_classes)."""
    capacity: FloatArray
    arrivals: tuple[Arrival, ...]

    def network(self) -> SharedNetwork:
        """Return a network with one flow class for each column, so that flow classes keep their numbers: caps too high to matter differ."""
        network = SharedNetwork(self.capacity)
        for number, column in enumerate(self.flows.T):
            network.add_class(RouteSet(link_ids=np.flatnonzero(column), flows=column[column > 0.0]), cap_bytes_per_s=1e9 + number)
        return network


TIMES = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 2.0]), st.floats(0.0, 20.0)).map(whole_ticks_s)
SIZES = st.one_of(st.sampled_from([0.0, 4.0, 8.0]), st.floats(1e-3, 1e4))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    n_links, n_flow_classes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    coefficients = st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=n_flow_classes, max_size=n_flow_classes)
    flows = np.array(draw(st.lists(coefficients, min_size=n_links, max_size=n_links)))
    flows[0, ~flows.any(axis=0)] = 1.0
    capacity = draw(st.lists(st.sampled_from([1.0, 4.0, 10.0, 33.0]), min_size=n_links, max_size=n_links))
    arrivals = draw(st.lists(st.builds(Arrival, at_s=TIMES, flow_class=st.integers(0, n_flow_classes - 1), size_bytes=SIZES), max_size=8))
    return Story(flows=flows, capacity=np.array(capacity), arrivals=tuple(arrivals))


def play(story: Story) -> tuple[dict[int, float], Clock]:
    """Return when each arrival landed, and the clock after the last."""
    clock, landed_s = Clock(network=story.network()), dict[int, float]()

    def fly(index: int, arrival: Arrival) -> None:
        coupled_flow = CoupledFlow(flow_class=arrival.flow_class, size_bytes=arrival.size_bytes, latency_s=arrival.at_s)
        clock.perform(((coupled_flow,),), lambda: landed_s.update({index: clock.now_s}))

    for index, arrival in enumerate(story.arrivals):
        fly(index, arrival)
    clock.world.run()
    return landed_s, clock


def fair_rates(flows: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return max-min fair rates as the textbook has them: all grow alike until a link is full, whose flows then stay behind."""
    rates = np.full(flows.shape[1], np.inf)
    left, grow = capacity.copy(), np.ones(flows.shape[1], dtype=np.bool_)
    while grow.any():
        crowd = flows[:, grow].sum(axis=1)
        levels = np.divide(left, crowd, out=np.full(len(left), np.inf), where=crowd > 0.0)
        stay = grow & (flows[levels <= levels.min() * (1.0 + 1e-12)] > 0.0).any(axis=0)
        rates[stay] = levels.min()
        left = np.maximum(left - flows[:, stay].sum(axis=1) * levels.min(), 0.0)
        grow &= ~stay
    return rates


def step_by_step(story: Story) -> dict[int, float]:
    """Return the same from a loop over time that knows neither flow classes nor events: rates of all flows, anew at every change."""
    waiting = sorted((arrival.at_s, index) for index, arrival in enumerate(story.arrivals))
    left: dict[int, float] = {}
    landed_s: dict[int, float] = {}
    now_s = 0.0
    while waiting or left:
        flying = list(left)
        columns = story.flows[:, [story.arrivals[index].flow_class for index in flying]]
        rates = dict(zip(flying, fair_rates(columns, story.capacity).tolist(), strict=True))
        ends = {index: now_s + left[index] / rates[index] for index in flying}
        next_s = min([*ends.values(), *(at_s for at_s, _ in waiting[:1])])
        left = {index: bytes_left - rates[index] * (next_s - now_s) for index, bytes_left in left.items()}
        now_s = next_s
        done = [index for index in left if left[index] <= 1e-9 * story.arrivals[index].size_bytes or ends[index] <= now_s * (1 + 1e-12)]
        for index in done:
            landed_s[index] = now_s
            del left[index]
        while waiting and waiting[0][0] <= now_s:
            _, index = waiting.pop(0)
            left[index] = story.arrivals[index].size_bytes
    return landed_s


@settings(deadline=None)
@given(stories())
def test_every_link_carries_the_bytes_of_the_flows_that_cross_it_and_no_other(story: Story) -> None:
    _, clock = play(story)

    network, link_classes = clock.network, link_classes_of(clock.network)
    carried = np.zeros(len(link_classes.first_link))
    for flow_class, moved_bytes in network.moved_bytes().items():
        carried += link_classes.flows[:, flow_class] * moved_bytes
    sent = sum((link_classes.flows[:, arrival.flow_class] * arrival.size_bytes for arrival in story.arrivals), start=np.zeros_like(carried))
    np.testing.assert_allclose(carried, sent, rtol=ROUND_OFF, atol=1e-12)


@settings(deadline=None)
@given(stories())
@example(Story(flows=np.ones((1, 1)), capacity=np.ones(1), arrivals=(Arrival(0.0, 0, 4.0), Arrival(1.0, 0, 4.0), Arrival(1.0, 0, 4.0))))
def test_the_clock_agrees_with_a_loop_over_time(story: Story) -> None:
    landed_s, _ = play(story)

    assert landed_s == pytest.approx(step_by_step(story), rel=1e-7, abs=1e-9)  # the loop drops the last billionth of a flow


@st.composite
def operations(draw: st.DrawFn) -> tuple[Story, FlowPhases]:
    """Return links, and an operation on them of a few phases."""
    story = draw(stories())
    coupled_flow = st.builds(CoupledFlow, flow_class=st.integers(0, story.flows.shape[1] - 1), size_bytes=SIZES, latency_s=TIMES)
    phases = draw(st.lists(st.lists(coupled_flow, min_size=1, max_size=4).map(tuple), max_size=3))
    return story, tuple(phases)


def seconds_by_class(states: dict[State, float]) -> dict[int, float]:
    """Return for how long each flow class was in flight, each of its flows by itself."""
    total: dict[int, float] = {}
    for state, seconds in states.items():
        for flow_class, count in state:
            total[flow_class] = total.get(flow_class, 0.0) + count * seconds
    return total


@settings(deadline=None)
@given(operations())
def test_an_operation_alone_takes_what_the_clock_says(drawn: tuple[Story, FlowPhases]) -> None:
    story, phases = drawn
    clock, landed_s = Clock(network=story.network()), list[float]()
    clock.perform(phases, lambda: landed_s.append(clock.now_s))
    clock.world.run()

    found = alone(phases, story.network())

    # A flow that lands between two ticks is rounded once either way.
    assert landed_s == pytest.approx([found.duration_s], abs=TICKS_S)
    assert found.carried.bytes == pytest.approx(clock.network.moved_bytes(), rel=ROUND_OFF)
    assert seconds_by_class(found.carried.seconds) == pytest.approx(seconds_by_class(dict(clock.network.occupancy())), abs=TICKS_S)
