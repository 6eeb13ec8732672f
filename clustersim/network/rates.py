"""Max-min fair rates of all flows in flight: solved from scratch and cached for few flow classes, updated change by change for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from clustersim.network.filling import progressive_filling
from clustersim.network.following import Following
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray

State = tuple[tuple[int, int], ...]
"""Flow classes in flight and their numbers of flows, ascending."""
FEW: Final = 32
"""Number of classes in flight up to which a component is solved from scratch and its solution cached."""
N_KEPT: Final = 1 << 20
"""Number of cached rates, in solutions and in transitions between them; above it the cache is cleared."""
PATIENCE: Final = 4
"""Looks for each link after which following a change has cost more than filling from nothing would have."""
BULK: Final = 0.25
"""Share of the classes in flight that change at one time from which on filling from scratch is faster."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowGroup:
    """Flow classes in flight that share links with each other, directly or through others in flight, and with no other."""

    state: State
    levels: FloatArray | None
    """Rate per weight of each class; None where rates are followed."""
    links: int = 0
    """Link classes of all classes, as bits of a number; a class without any has a bit of its own."""
    rates: Mapping[int, float] = field(default_factory=dict[int, float])
    """The levels by class."""


class Change(NamedTuple):
    """Effect of flows that came and went."""

    flows: Sequence[int] | IntArray
    """Flow classes in flight with a new rate or a new count."""
    rates: Sequence[float] | FloatArray
    """Rate of each of them."""
    ended: Sequence[FlowGroup]
    """Groups no longer in flight."""
    begun: Sequence[FlowGroup]
    """Groups newly in flight."""


@dataclass(slots=True)
class Component:
    """Flow classes connected through shared links, in flight or not."""

    number: int
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each class that has any."""
    many: bool = False
    """True while the rates are followed."""
    in_flight: dict[FlowGroup, None] = field(default_factory=dict[FlowGroup, None])
    """Groups in flight while the classes are few, the oldest first."""
    _all: FlowGroup | None = None
    """All classes in flight, where they are many; None until needed."""

    def count(self, changes: State) -> None:
        """Set the number of flows in flight of some classes."""
        counts = self.counts
        for flow, count in changes:
            if count:
                counts[flow] = count
            elif flow in counts:
                del counts[flow]
        self._all = None

    def regroup(self, change: Change) -> None:
        """Put the groups that begin in the place of those that end."""
        for group in change.ended:
            del self.in_flight[group]
        for group in change.begun:
            self.in_flight[group] = None

    def groups(self) -> Sequence[FlowGroup]:
        """Return the groups in flight; a component with many classes has one group."""
        if self.many:
            if self._all is None:
                self._all = FlowGroup(self.state(), None)
            return [self._all] if self.counts else []
        return list(self.in_flight)

    def state(self) -> State:
        """Return the flow classes in flight."""
        return tuple(sorted(self.counts.items()))


@dataclass(slots=True, kw_only=True)
class RateCache:
    """Max-min fair rates per weight of the flow classes of a wiring, as flows come and go."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the solver for many classes; None where that is possible and pays."""
    few: int = FEW
    """Number of classes in flight up to which a component is solved from scratch."""
    components: Sequence[int] = field(init=False)
    """Component of each class."""
    _capacity_bytes_per_s: Sequence[float] = field(init=False)
    _components: dict[int, Component] = field(default_factory=dict[int, Component])
    _kept: dict[tuple[tuple[FlowGroup, ...], State], Change] = field(default_factory=dict[tuple[tuple[FlowGroup, ...], State], Change])
    """By the groups that change and the changed classes with their new flow counts."""
    _groups: dict[State, FlowGroup] = field(default_factory=dict[State, FlowGroup])
    _masks: dict[int, int] = field(default_factory=dict[int, int])
    """Link classes of each class that was in flight, as bits of a number."""
    _n_kept: int = 0
    """Rates in groups and in changes from one to another."""
    _following: Following | None = None

    def __post_init__(self) -> None:
        """Look up components and capacities one by one."""
        self.components = self.wiring.components.tolist()
        self._capacity_bytes_per_s = self.wiring.capacity_bytes_per_s.tolist()

    def emptied(self) -> RateCache:
        """Return the rates of the same flow classes with nothing in flight, and all solutions that are known."""
        cache = RateCache(wiring=self.wiring, compiled=self.compiled, few=self.few)
        cache._kept, cache._groups, cache._masks, cache._n_kept = self._kept, self._groups, self._masks, self._n_kept
        return cache

    def component(self, number: int) -> Component:
        """Return a component of the network."""
        found = self._components.get(number)
        if found is None:
            found = self._components[number] = Component(number)
        return found

    def solve(self, state: State) -> Mapping[int, float]:
        """Return the rate of each class of a state."""
        return {flow: rate for group in self._grouped(state) for flow, rate in group.rates.items()}

    def change(self, component: Component, changes: State) -> Change:
        """Return the new rates after changes of counts: of all classes in flight whose rate changes, and of the changed classes.

        Parameters
        ----------
        changes
            Pairs of a class and the number of its flows.
        """
        if not component.many:
            touched = self._touched(component, changes)
            component.count(changes)
            if len(component.counts) > self.few:
                return self._fill(component, component.groups())
            change = self._kept.get((touched, changes))
            if change is None:
                change = self._regrouped(touched, changes)
            component.regroup(change)
            return change
        before = component.groups()
        component.count(changes)
        if len(changes) > FEW and len(changes) > BULK * len(component.counts):
            return self._fill(component, before)
        flows, counts = _columns(changes)
        settled = self._follow().settle(flows, counts, PATIENCE * len(self.wiring.first_link))
        if settled is None:
            return self._fill(component, before)
        self._go_on(component)
        return Change(*settled, before, component.groups())

    def _touched(self, component: Component, changes: State) -> tuple[FlowGroup, ...]:
        """Return the groups in flight that changed classes are in, or share links with."""
        links, masks = 0, self._masks
        for flow, _ in changes:
            links |= masks.get(flow) or self._links_of(flow)
        return tuple([group for group in component.in_flight if group.links & links])

    def _regrouped(self, touched: tuple[FlowGroup, ...], changes: State) -> Change:
        """Return the effect of changes on some groups; it is cached."""
        counts = {flow: count for group in touched for flow, count in group.state} | dict(changes)
        state = tuple(sorted((flow, count) for flow, count in counts.items() if count))
        if len(changes) == 1 and changes[0][1]:
            # All groups that share links with one class are one group with it.
            links = self._links_of(changes[0][0])
            for group in touched:
                links |= group.links
            groups = [self._group(state, links)]
        else:
            groups = self._grouped(state)
        before = {flow: rate for group in touched for flow, rate in group.rates.items()}
        changed = {flow for flow, _ in changes}
        found = [(flow, rate) for group in groups for flow, rate in group.rates.items() if rate != before.get(flow) or flow in changed]
        self._keep(1 + len(found))
        change = self._kept[touched, changes] = Change(
            [flow for flow, _ in found],
            [rate for _, rate in found],
            [group for group in touched if group not in groups],
            [group for group in groups if group not in touched],
        )
        return change

    def _grouped(self, state: State) -> list[FlowGroup]:
        """Return the groups of a state; one where it has many classes."""
        if len(state) > self.few:
            return [self._filled(state)]
        counts, masks = dict(state), {flow: self._links_of(flow) for flow, _ in state}
        left = list(masks)
        groups: list[FlowGroup] = []
        while left:
            # Links of the group so far, and classes that share one of them.
            mask, near = 0, [left[0]]
            members: list[int] = []
            while near:
                members += near
                for flow in near:
                    mask |= masks[flow]
                taken = set(near)
                left = [flow for flow in left if flow not in taken]
                near = [flow for flow in left if masks[flow] & mask]
            groups.append(self._group(tuple((flow, counts[flow]) for flow in sorted(members)), mask))
        return groups

    def _group(self, state: State, links: int) -> FlowGroup:
        """Return the group of a state in which all classes share links."""
        group = self._groups.get(state)
        if group is None:
            self._keep(1 + len(state))
            group = self._groups[state] = self._filled(state, links)
        return group

    def _links_of(self, flow: int) -> int:
        """Return the link classes of a class as bits of a number."""
        mask = self._masks.get(flow)
        if mask is None:
            first, last = self.wiring.starts[flow : flow + 2].tolist()
            crossed = np.zeros(len(self.wiring.first_link), dtype=np.bool_)
            crossed[self.wiring.link_classes[first:last]] = True
            mask = int.from_bytes(np.packbits(crossed).tobytes()) or 1 << (8 * len(crossed) + flow)
            self._masks[flow] = mask
        return mask

    def _filled(self, state: State, links: int = 0) -> FlowGroup:
        """Return a group with the rates that filling from nothing gives."""
        flows, counts = _columns(state)
        levels, _ = progressive_filling(self.wiring.rows(flows, counts), self._capacity_bytes_per_s)
        return FlowGroup(state, np.array(levels), links, dict(zip(flows, levels, strict=True)))

    def _keep(self, n_rates: int) -> None:
        """Clear the cache when it holds too many rates, which bounds its memory."""
        self._n_kept += n_rates
        if self._n_kept <= N_KEPT:
            return
        self._kept.clear()
        self._groups.clear()
        self._n_kept = n_rates

    def _go_on(self, component: Component) -> None:
        """Follow the rates of a component while flows are in flight."""
        component.many = len(component.counts) > 0
        component.in_flight.clear()

    def _fill(self, component: Component, before: Sequence[FlowGroup]) -> Change:
        self._go_on(component)
        flows, counts = _columns(component.state())
        rates = self._follow().fill(np.flatnonzero(self.wiring.components == component.number), flows, counts)
        return Change(flows, rates, before, component.groups())

    def _follow(self) -> Following:
        if self._following is None:
            self._following = Following(self.wiring, self.compiled)
        return self._following


def _columns(state: State) -> tuple[list[int], list[float]]:
    return [flow for flow, _ in state], [float(count) for _, count in state]
