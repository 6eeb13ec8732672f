"""Max-min fairness of coupled flows with weights and caps that come and go on shared links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.network.flow_times import Flow, Pipe, finish_times
from clustersim.network.in_flight import LONGEST_S, TICK_S, whole_ticks_s
from clustersim.network.rates import FEW, State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.link_demand import RouteSet

INF = float("inf")
ROUND_OFF = 1e-9
TICKS_S = 16 * TICK_S
"""Half a tick for each change of a rate, and for each start."""
"""Rates are differences of capacities: a handful of roundings, and room for those that cancel."""


@dataclass(frozen=True)
class Coupled:
    flows: dict[int, float]
    """Coefficient by link."""
    weight: float = 1.0
    cap: float = INF

    @property
    def route_set(self) -> RouteSet:
        links = sorted(self.flows)
        return RouteSet(link_ids=np.array(links, dtype=np.int64), flows=np.array([self.flows[link] for link in links]))


@dataclass(frozen=True)
class Problem:
    capacity: tuple[float, ...]
    flow_classes: tuple[Coupled, ...]
    counts: tuple[int, ...]
    """Flows in flight of each flow class, one or more."""


COEFFICIENTS = st.sampled_from([0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 14.0])
CAPACITIES = st.one_of(st.sampled_from([1.0, 2.0, 4.0, 12.0]), st.floats(1e-3, 1e3))
WEIGHTS = st.sampled_from([1.0, 1.0, 1.0, 0.25, 3.0])
CAPS = st.sampled_from([INF, INF, INF, 0.25, 1.0, 5.0])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n_links, n_flow_classes = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    ways = st.dictionaries(st.integers(0, n_links - 1), COEFFICIENTS, min_size=1, max_size=4)
    flow_classes = draw(
        st.lists(st.builds(Coupled, flows=ways, weight=WEIGHTS, cap=CAPS), min_size=n_flow_classes, max_size=n_flow_classes)
    )
    counts = draw(st.lists(st.sampled_from([1, 1, 2, 5]), min_size=n_flow_classes, max_size=n_flow_classes))
    return Problem(
        capacity=tuple(draw(st.lists(CAPACITIES, min_size=n_links, max_size=n_links))),
        flow_classes=tuple(flow_classes),
        counts=tuple(counts),
    )


def network(problem: Problem, few: int = FEW) -> tuple[SharedNetwork, list[int]]:
    made = SharedNetwork(np.array(problem.capacity), few=few)
    return made, [
        made.add_class(flow_class.route_set, weight=flow_class.weight, cap_bytes_per_s=flow_class.cap)
        for flow_class in problem.flow_classes
    ]


def rates(problem: Problem) -> list[float]:
    """Return the rate of one flow of each flow class; equal flow classes are one to the network, with the sum of their counts."""
    made, numbers = network(problem)
    counts = dict.fromkeys(numbers, 0)
    for number, count in zip(numbers, problem.counts, strict=True):
        counts[number] += count
    found = made.rates(tuple(sorted(counts.items())))
    return [found[number] for number in numbers]


def loads(problem: Problem, found: Sequence[float]) -> list[float]:
    """Return what each link carries."""
    flying = list(zip(problem.flow_classes, problem.counts, found, strict=True))
    return [
        sum(flow_class.flows.get(link, 0.0) * count * rate for flow_class, count, rate in flying) for link in range(len(problem.capacity))
    ]


def exact_rates(problem: Problem) -> list[float]:
    """Return the rates by the textbook: raise all levels together, in exact fractions, until a link is full or a cap is reached."""
    flying = [
        ({link: Fraction(flows) * count for link, flows in flow_class.flows.items()}, Fraction(flow_class.weight))
        for flow_class, count in zip(problem.flow_classes, problem.counts, strict=True)
    ]
    limits = [
        Fraction(flow_class.cap) / Fraction(flow_class.weight) if flow_class.cap < INF else None for flow_class in problem.flow_classes
    ]
    level, growing = [Fraction(0)] * len(flying), list(range(len(flying)))
    while growing:
        slack = [Fraction(limit) for limit in problem.capacity]
        slope = [Fraction(0)] * len(slack)
        for number, (flows, weight) in enumerate(flying):
            for link, flow in flows.items():
                slack[link] -= flow * weight * level[number]
                slope[link] += flow * weight if number in growing else 0
        rooms = [left / steep for left, steep in zip(slack, slope, strict=True) if steep]
        step = min([*rooms, *(limit - level[number] for number in growing if (limit := limits[number]) is not None)])
        for number in growing:
            level[number] += step
        full = [link for link, (left, steep) in enumerate(zip(slack, slope, strict=True)) if steep and left == steep * step]
        growing = [number for number in growing if level[number] != limits[number] and not any(link in flying[number][0] for link in full)]
    return [float(reached * weight) for reached, (_, weight) in zip(level, flying, strict=True)]


@given(problems())
def test_every_flow_class_below_its_cap_crosses_a_full_link_on_which_no_weighted_rate_is_higher(problem: Problem) -> None:
    found = rates(problem)

    carried = loads(problem, found)
    full = [link for link, load in enumerate(carried) if load >= problem.capacity[link] * (1.0 - ROUND_OFF)]
    weighted = [rate / flow_class.weight for rate, flow_class in zip(found, problem.flow_classes, strict=True)]
    for number, flow_class in enumerate(problem.flow_classes):
        assert found[number] <= flow_class.cap * (1.0 + ROUND_OFF)
        highest = [
            max(weighted[other] for other, rival in enumerate(problem.flow_classes) if link in rival.flows)
            for link in full
            if link in flow_class.flows
        ]
        at_its_cap = found[number] >= flow_class.cap * (1.0 - ROUND_OFF)
        assert at_its_cap or any(weighted[number] >= level * (1.0 - ROUND_OFF) for level in highest)


@settings(deadline=None)
@given(problems())
def test_the_rates_are_those_of_progressive_filling_in_exact_fractions(problem: Problem) -> None:
    assert rates(problem) == pytest.approx(exact_rates(problem), rel=ROUND_OFF)


@given(problems(), st.floats(1e-6, 1e12))
def test_rates_grow_with_capacities_and_caps(problem: Problem, factor: float) -> None:
    flow_classes = tuple(replace(flow_class, cap=flow_class.cap * factor) for flow_class in problem.flow_classes)

    scaled = rates(Problem(tuple(capacity * factor for capacity in problem.capacity), flow_classes, problem.counts))

    assert scaled == pytest.approx([rate * factor for rate in rates(problem)], rel=ROUND_OFF)


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from([0, 2, 32]), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_rates_followed_from_change_to_change_are_those_solved_from_nothing(
    problem: Problem, few: int, changes: list[tuple[int, bool]]
) -> None:
    made, numbers = network(problem, few)
    in_flight: dict[int, int] = {}
    for flow, (which, starts) in enumerate(changes):
        if starts or not in_flight:
            in_flight[flow] = numbers[which % len(numbers)]
            made.start(flow, in_flight[flow], INF)
        else:
            gone = list(in_flight)[which % len(in_flight)]
            made.stop(gone)
            del in_flight[gone]
        made.share()

        flying = list(in_flight.values())
        state: State = tuple(sorted((number, flying.count(number)) for number in dict.fromkeys(flying)))
        expected = made.rates(state)
        found = {number: made._in_flight._rate.each[number] for number in expected}
        assert found == pytest.approx(dict(expected), rel=ROUND_OFF)


@given(problems(), st.randoms(use_true_random=False))
def test_rates_are_the_same_to_the_last_bit_in_whatever_order_flow_classes_come_and_copies_of_a_network_are_filled_in_one(
    problem: Problem, random: Random
) -> None:
    problem = replace(problem, flow_classes=tuple(replace(flow_class, weight=1.0) for flow_class in problem.flow_classes))
    order = list(range(len(problem.flow_classes)))
    random.shuffle(order)
    n_links = len(problem.capacity)
    moved = [
        replace(flow_class, flows={link + n_links: flows for link, flows in flow_class.flows.items()})
        for flow_class in problem.flow_classes
    ]
    # One more flow class on both copies makes them one component; it takes nothing to speak of, and the same of both.
    joining = Coupled(flows=dict.fromkeys(range(2 * n_links), 1.0), cap=2.0**-60)

    alone = rates(
        replace(
            problem,
            flow_classes=(*problem.flow_classes, replace(joining, flows=dict.fromkeys(range(n_links), 1.0))),
            counts=(*problem.counts, 1),
        )
    )
    shuffled = rates(
        replace(
            problem, flow_classes=tuple(problem.flow_classes[each] for each in order), counts=tuple(problem.counts[each] for each in order)
        )
    )
    twice = rates(Problem(problem.capacity * 2, (joining, *moved, *problem.flow_classes), (1, *problem.counts, *problem.counts)))

    assert [shuffled[order.index(each)] for each in range(len(order))] == rates(problem)
    assert twice[1:] == alone[:-1] * 2


@st.composite
def transfers(draw: st.DrawFn) -> tuple[list[Pipe], list[Flow]]:
    n_links = draw(st.integers(1, 5))
    pipes = st.builds(Pipe, bandwidth_bytes_per_s=CAPACITIES, latency_s=st.sampled_from([0.0, 0.0, 0.5, 3.0]))
    routes = st.lists(st.integers(0, n_links - 1), min_size=1, max_size=3, unique=True).map(tuple)
    flows = st.builds(
        Flow,
        route=routes,
        size_bytes=st.one_of(st.sampled_from([0.0, 4.0, 8.0]), st.floats(1e-3, 1e4)),
        start_s=st.one_of(st.sampled_from([0.0, 1.0, 1.0]), st.floats(0.0, 20.0)),
        weight=WEIGHTS,
        cap_bytes_per_s=CAPS,
    )
    return draw(st.lists(pipes, min_size=n_links, max_size=n_links)), draw(st.lists(flows, min_size=1, max_size=8))


def way_s(links: Sequence[Pipe], flow: Flow) -> float:
    return sum(links[link].latency_s for link in flow.route)


@settings(deadline=None)
@given(transfers())
def test_no_flow_is_faster_than_alone(case: tuple[list[Pipe], list[Flow]]) -> None:
    links, flows = case
    ends_s = finish_times(links, flows)
    # Ticks are coarser where the last flow ends beyond the longest time of fine ones.
    ticks_s = TICKS_S * max(1.0, max(ends_s) / LONGEST_S)
    for flow, end_s in zip(flows, ends_s, strict=True):
        rate = min([flow.cap_bytes_per_s, *(links[link].bandwidth_bytes_per_s for link in flow.route)])
        assert end_s >= flow.start_s + way_s(links, flow) + flow.size_bytes / rate - ticks_s


@settings(deadline=None)
@given(transfers())
def test_every_byte_arrives_and_no_other(case: tuple[list[Pipe], list[Flow]]) -> None:
    links, flows = case
    made = SharedNetwork(np.array([link.bandwidth_bytes_per_s for link in links]))
    flow_classes = [
        made.add_class(Coupled(dict.fromkeys(flow.route, 1.0)).route_set, weight=flow.weight, cap_bytes_per_s=flow.cap_bytes_per_s)
        for flow in flows
    ]
    waiting = sorted((whole_ticks_s(flow.start_s), index) for index, flow in enumerate(flows))
    while waiting or made.next_end_s() < INF:
        made.advance(max(made.now_s, min(made.next_end_s(), waiting[0][0] if waiting else INF)))
        made.finished()
        while waiting and waiting[0][0] <= made.now_s:
            _, index = waiting.pop(0)
            made.start(index, flow_classes[index], flows[index].size_bytes)
        made.share()

    carried = [0.0] * len(links)
    for flow_class, moved_bytes in made.moved_bytes().items():
        for link in made.flow_classes[flow_class].route_set.link_ids.tolist():
            carried[link] += moved_bytes
    sent = [sum(flow.size_bytes for flow in flows if link in flow.route) for link in range(len(links))]
    assert carried == pytest.approx(sent, rel=1e-12)


@settings(deadline=None)
@given(transfers(), st.sampled_from([0.125, 2.0, 1024.0]))
def test_time_and_bandwidth_scale(case: tuple[list[Pipe], list[Flow]], factor: float) -> None:
    links, flows = case
    faster = [Pipe(bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor, latency_s=link.latency_s / factor) for link in links]
    sooner = [replace(flow, start_s=flow.start_s / factor, cap_bytes_per_s=flow.cap_bytes_per_s * factor) for flow in flows]

    ends_s = finish_times(links, flows)
    assert finish_times(faster, sooner) == pytest.approx([end_s / factor for end_s in ends_s], abs=TICKS_S / min(1.0, factor))
