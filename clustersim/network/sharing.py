"""State of the flows on shared links, between two changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clustersim.network.in_flight import INF, FlowsInFlight
from clustersim.network.rates import FEW, FlowGroup, RateCache, State
from clustersim.network.wiring import FlowClass, Wiring, wiring_of
from clustersim.topology.cluster import FloatArray, IntArray, LinkFloats, LinkInts
from clustersim.topology.link_demand import RouteSet


class SharedNetwork:
    """Flows in flight that share links max-min fairly, and the time of the next end.

    Knows nothing of events: whoever simulates asks and tells. After the changes of an instant, ``share`` gives all their
    rates; then time may ``advance``, at the latest to ``next_end_s``, and ``finished`` says what has landed.

    Parameters
    ----------
    capacity_bytes_per_s
        Of every link of the cluster.
    labels
        One number for each link, such as its tier; links with different labels stand in different link classes of ``wiring``.
    account
        Whether to keep ``occupancy``.
    compiled
        Whether to compile the solver for many flow classes with numba; by default where it is installed and the flow classes are very many.
        The results are the same.
    few
        Up to so many flow classes in flight all levels are found from nothing after each change. They then depend on what is in flight
        alone, to the last bit; with more a change is followed, which is faster and right to a part in ten to the thirteen.

    Examples
    --------
    >>> network = SharedNetwork(np.array([10.0, 4.0]))
    >>> both = network.add_class(RouteSet(link_ids=np.array([0, 1]), flows=np.ones(2)))
    >>> first = network.add_class(RouteSet(link_ids=np.array([0]), flows=np.ones(1)))
    >>> network.start(0, both, 4.0); network.start(1, first, 12.0); network.share()
    >>> network.next_end_s()
    1.0
    >>> network.advance(1.0); network.finished()
    [0]
    """

    def __init__(
        self,
        capacity_bytes_per_s: FloatArray | LinkFloats,
        *,
        labels: IntArray | LinkInts | None = None,
        account: bool = True,
        compiled: bool | None = None,
        few: int = FEW,
    ) -> None:
        self.now_s = 0.0
        self.shares = True
        """False where each flow has the rate that it has alone, as in a lower bound."""
        self._capacity_bytes_per_s = capacity_bytes_per_s
        self._labels = np.zeros(len(capacity_bytes_per_s), dtype=np.int64) if labels is None else labels
        self._compiled, self._few = compiled, few
        self._occupancy = Occupancy() if account else None
        self._flow_classes: list[FlowClass] = []
        self._numbers: dict[tuple[float, ...], list[int]] = {}
        """Numbers of flow classes with the same key."""
        self._weights: FloatArray | None = None
        self._in_flight = FlowsInFlight()
        self._touched: dict[int, None] = {}
        self._cache: RateCache | None = None

    def add_class(self, route_set: RouteSet, *, weight: float = 1.0, cap_bytes_per_s: float = INF) -> int:
        """Return the number of a flow class; equal flow classes share one.

        Parameters
        ----------
        weight
            Under progressive filling the rate grows as this times the level that is common to all.
        cap_bytes_per_s
            The rate never exceeds it.
        """
        assert weight > 0.0
        assert cap_bytes_per_s > 0.0
        if not (route_set.flows > 0.0).all():
            crossed = route_set.flows > 0.0
            route_set = RouteSet(link_ids=route_set.link_ids[crossed], flows=route_set.flows[crossed])
        flow_class = FlowClass(route_set=route_set, weight=weight, cap_bytes_per_s=cap_bytes_per_s)
        known = self._numbers.setdefault(flow_class.key, [])
        for number in known:
            if self._flow_classes[number].is_like(flow_class):
                return number
        known.append(len(self._flow_classes))
        self._flow_classes.append(flow_class)
        self._cache = None
        return known[-1]

    def emptied(self) -> SharedNetwork:
        """Return the same network with the same flow classes at time 0, with nothing in flight."""
        network = SharedNetwork(
            self._capacity_bytes_per_s,
            labels=self._labels,
            account=self._occupancy is not None,
            compiled=self._compiled,
            few=self._few,
        )
        network._flow_classes, network._numbers = list(self._flow_classes), {key: list(found) for key, found in self._numbers.items()}
        network.shares = self.shares
        if self._cache is not None:
            network._cache, network._weights = self._cache.emptied(), self._weights
            network._in_flight.grow(len(self._flow_classes))
        return network

    @property
    def flow_classes(self) -> Sequence[FlowClass]:
        """All flow classes, by number."""
        return self._flow_classes

    @property
    def wiring(self) -> Wiring:
        """The flow classes on link classes."""
        return self._rate_cache().wiring

    def start(self, flow: int, flow_class: int, size_bytes: float) -> None:
        """Add a flow now. A flow of infinite size is background traffic and runs until it is stopped."""
        self._rate_cache()
        self._in_flight.start(flow, flow_class, size_bytes, self.now_s)
        self._touched[flow_class] = None

    def stop(self, flow: int) -> None:
        """Take a flow out that has not landed."""
        self._touched[self._in_flight.stop(flow, self.now_s)] = None

    def advance(self, now_s: float) -> None:
        """Advance time; each flow in flight progresses at its rate."""
        assert now_s >= self.now_s
        self.now_s = now_s

    def finished(self) -> list[int]:
        """Take out and return the flows that have landed, in the order in which they started."""
        landed = self._in_flight.landed(self.now_s)
        for _, flow_class in landed:
            self._touched[flow_class] = None
        return [flow for flow, _ in landed]

    def share(self) -> None:
        """Set the max-min fair rate of each flow in flight."""
        cache, counts = self._rate_cache(), self._in_flight.counts
        components = cache.components
        touched: dict[int, State] = {}
        for flow_class in self._touched:
            component = components[flow_class]
            touched[component] = (*touched.get(component, ()), (flow_class, counts.get(flow_class, 0)))
        self._touched.clear()
        now_s, occupancy = self.now_s, self._occupancy
        for component, changes in touched.items():
            flows, rates, ended, begun = cache.change(cache.component(component), changes)
            if occupancy is not None:
                occupancy.note(ended, begun, now_s)
            if not self.shares:
                rates = [self.idle_rate(each) for each in flows]
            elif self._weights is not None:
                rates = self._rates(flows, rates)
            self._in_flight.set_rates(flows, rates, now_s)

    def next_end_s(self) -> float:
        """Return when the next flow lands at the present rates, in seconds; infinite when none ever does."""
        return self._in_flight.next_end_s()

    def idle_rate(self, flow_class: int) -> float:
        """Return the rate of one flow of a flow class alone on the network, in bytes per second."""
        route_set = self._flow_classes[flow_class].route_set
        room = self._capacity_bytes_per_s[route_set.link_ids] / route_set.flows
        return min(float(room.min(initial=INF)), self._flow_classes[flow_class].cap_bytes_per_s)

    def rates(self, state: State) -> Mapping[int, float]:
        """Return the rate of one flow of each flow class of a state, in bytes per second.

        Parameters
        ----------
        state
            Pairs of a flow class and the number of its flows, ascending.
        """
        if not self.shares:
            return {flow_class: self.idle_rate(flow_class) for flow_class, _ in state}
        return {flow_class: level * self._flow_classes[flow_class].weight for flow_class, level in self._rate_cache().solve(state).items()}

    def rates_of(self, state: State) -> FloatArray:
        """Return the same in the order of the state; a state that was in flight is not solved again."""
        flow_classes = [flow_class for flow_class, _ in state]
        levels = None if self._occupancy is None else self._occupancy.levels.get(state)
        if levels is None:
            rates = self.rates(state)
            return np.array([rates[flow_class] for flow_class in flow_classes])
        return np.asarray(self._rates(flow_classes, levels))

    def occupancy(self) -> Mapping[State, float]:
        """Return the time in flight of each state, in seconds.

        Flow classes that have no way of meeting, not even through others, have states of their own, each with its own seconds. Empty
        without ``account``.
        """
        return {} if self._occupancy is None else self._occupancy.until(self.now_s)

    def moved_bytes(self) -> Mapping[int, float]:
        """Return the bytes that all flows of each class have moved so far."""
        return self._in_flight.moved_bytes(self.now_s)

    def _rates(self, flow_classes: Sequence[int] | IntArray, levels: Sequence[float] | FloatArray) -> Sequence[float] | FloatArray:
        if self._weights is None:
            return levels
        return self._weights[np.asarray(flow_classes, dtype=np.int64)] * levels

    def _rate_cache(self) -> RateCache:
        """Return the rates of the present flow classes; with new flow classes everything in flight is shared anew."""
        if self._cache is None:
            wiring = wiring_of(self._flow_classes, self._capacity_bytes_per_s, self._labels)
            self._cache = RateCache(wiring=wiring, compiled=self._compiled, few=self._few)
            weights = np.array([flow_class.weight for flow_class in self._flow_classes])
            self._weights = None if (weights == 1.0).all() else weights
            self._in_flight.grow(len(self._flow_classes))
            self._touched.update(dict.fromkeys(self._in_flight.counts))
            if self._occupancy is not None:
                self._occupancy.close(self.now_s)
        return self._cache


@dataclass(slots=True)
class Occupancy:
    """Time in flight of each group of flows, in seconds."""

    levels: dict[State, FloatArray] = field(default_factory=dict[State, FloatArray])
    """Rate per weight of each flow class of the groups in ``until`` whose rates were solved."""
    _seconds: dict[FlowGroup, float] = field(default_factory=dict[FlowGroup, float])
    _since_s: dict[FlowGroup, float] = field(default_factory=dict[FlowGroup, float])
    """Start of each group in flight, in seconds."""

    def note(self, ended: Iterable[FlowGroup], begun: Iterable[FlowGroup], now_s: float) -> None:
        """End the groups no longer in flight, and start new ones."""
        for group in ended:
            self._end(group, now_s)
        for group in begun:
            self._since_s[group] = now_s

    def close(self, now_s: float) -> None:
        """End all groups, whose classes will have other numbers from now on."""
        for group in list(self._since_s):
            self._end(group, now_s)

    def until(self, now_s: float) -> Mapping[State, float]:
        """Return all seconds up to now."""
        seconds: dict[State, float] = {}
        under_way = ((group, now_s - since_s) for group, since_s in self._since_s.items() if now_s > since_s)
        for group, lasted_s in (*self._seconds.items(), *under_way):
            seconds[group.state] = seconds.get(group.state, 0.0) + lasted_s
            if group.levels is not None:
                self.levels[group.state] = group.levels
        return seconds

    def _end(self, group: FlowGroup, now_s: float) -> None:
        since_s = self._since_s.pop(group, now_s)
        if now_s > since_s:
            self._seconds[group] = self._seconds.get(group, 0.0) + now_s - since_s
