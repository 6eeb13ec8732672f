"""Fair rates of everything in flight: solved from nothing and kept while flow classes are few, followed from change to change when many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec, module_from_spec
from inspect import isfunction
from itertools import accumulate
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np

from clustersim.network import maxmin
from clustersim.network.filling import progressive_filling, spans
from clustersim.network.maxmin import INF, Groups, Table
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray

COMPILE_AFTER: Final = 50_000
"""Looks after which the compiled solver is loaded: half a second's work, and so is the loading."""
SPARE: Final = 1 << 22
"""Places in the arrays of the compiled solver that may stay empty because some routes are longer than others."""
State = tuple[tuple[int, int], ...]
"""Flow classes in flight and how many flows of each, ascending."""
Settled = tuple[Sequence[int] | IntArray, Sequence[float] | FloatArray]
"""Flow classes, and the rate of each."""

FEW: Final = 32
"""Up to so many classes in flight a component is solved from nothing, and the solution kept; a replay comes back to it."""
N_KEPT: Final = 1 << 20
"""Rates that are kept, in solutions and in steps from one to another; with more all go."""
PATIENCE: Final = 4
"""Looks for each link after which following a change has cost more than filling from nothing would have."""
BULK: Final = 0.25
"""Share of the classes in flight that change in one instant from which on filling from nothing is cheaper at once."""


def numba_is_installed() -> bool:
    """Return whether the solver can be compiled; the extra ``fast`` brings what that needs."""
    return find_spec("numba") is not None


@cache
def compiled_solver() -> ModuleType:
    """Return a second copy of the solver's module, compiled.

    The machine code is kept on disk from one process to the next; to load it takes a third of a second.
    """
    import numba

    spec = find_spec(maxmin.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, function in list(vars(module).items()):
        if isfunction(function) and function.__module__ == module.__name__:
            try:
                setattr(module, name, numba.njit(cache=True)(function))
            except RuntimeError:
                # No folder to keep the machine code in.
                setattr(module, name, numba.njit(function))
    return module


def table_of(wiring: Wiring) -> Table:
    """Return the table of a wiring with nothing in flight, in lists. Behind its links stand the caps, and one link without bounds."""
    n_flows, n_links = len(wiring.limits), len(wiring.first_link)
    bounds, capped = wiring.starts.tolist(), np.flatnonzero(np.isfinite(wiring.limits)).tolist()
    last = n_links + len(capped)
    caps = dict(zip(capped, range(n_links, last), strict=True))
    own = [[caps[flow]] if flow in caps else [] for flow in range(n_flows)]
    cells, loads = wiring.cells.tolist(), wiring.loads.tolist()
    crossings = [*np.bincount(wiring.cells, minlength=n_links).tolist(), *[1] * len(capped)]
    n_places = len(cells) + len(capped)
    return Table(
        route=[cells[bounds[flow] : bounds[flow + 1]] + own[flow] for flow in range(n_flows)],
        unit=[loads[bounds[flow] : bounds[flow + 1]] + [1.0] * len(own[flow]) for flow in range(n_flows)],
        cap=[caps.get(flow, last) for flow in range(n_flows)],
        limit=wiring.limits.tolist(),
        n_flows=[0.0] * n_flows,
        bottleneck=[last] * n_flows,
        capacity=[*wiring.capacity_bytes_per_s.tolist(), *[INF] * (len(capped) + 1)],
        first=[0, *accumulate(crossings)],
        crossing=[0] * n_places,
        load=[0.0] * n_places,
        n_crossing=[0] * (last + 1),
        n_group=[0] * (last + 1),
        fair=[INF] * (last + 1),
        taken=[0.0] * (last + 1),
        group=[0.0] * (last + 1),
        guessed=[0] * (last + 1),
        waiting=[0] * (last + 1),
        looks=[0] * (last + 1),
        n_looks=[0],
    )


def for_numba(table: Table, groups: Groups) -> tuple[Table, Groups]:
    """Return a table in arrays, and groups in the lists and dicts of numba."""
    from numba import typed, types

    width, last = max(map(len, table.route)), len(table.capacity) - 1
    columns = {name: np.array(column) for name, column in table._asdict().items() if name not in ("route", "unit")}
    columns["route"] = np.array([[*route, *[last] * (width - len(route))] for route in table.route])
    columns["unit"] = np.array([[*unit, *[0.0] * (width - len(unit))] for unit in table.unit])
    in_numba: list[MutableMapping[int, float]] = [typed.Dict.empty(types.int64, types.float64) for _ in groups]
    for there, loads in zip(in_numba, groups, strict=True):
        for other, load in loads.items():
            there[other] = load
    in_list: Callable[[Groups], Groups] = typed.List  # pyright: ignore[reportAssignmentType] - numba has no types
    return Table(**columns), in_list(in_numba)  # pyright: ignore[reportArgumentType] - rows of a matrix are arrays


@dataclass(slots=True)
class Following:
    """Fair rates of many flow classes, followed from change to change; nothing is in flight at first."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the solver; None where that is possible and pays."""
    table: Table = field(init=False)
    groups: Groups = field(init=False)
    _solver: ModuleType = maxmin

    def __post_init__(self) -> None:
        """Lay the table."""
        self.table = table_of(self.wiring)
        self.groups = [{} for _ in self.table.fair]
        if self.compiled or (self.compiled is None and compiled_solver.cache_info().currsize):
            self.compile()

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled solver follows the rates."""
        return self._solver is not maxmin

    def compile(self) -> None:
        """Go over to the compiled solver, unless routes are of so different lengths that its arrays would be mostly empty."""
        n_flows, longest = len(self.table.route), int(np.diff(self.wiring.starts).max())
        if n_flows * longest <= len(self.wiring.cells) + SPARE:
            (self.table, self.groups), self._solver = for_numba(self.table, self.groups), compiled_solver()

    def settle(self, flows: list[int], counts: list[float], patience: int) -> Settled | None:
        """Set how many flows of some classes are in flight and bring all links into balance.

        Returns
        -------
        tuple or None
            All classes with another rate and those of ``flows`` that are in flight, some of them twice, with their rates. None when
            the change reaches further than ``patience`` looks; then the component has to be filled.
        """
        if self.compiled is None and not self.is_compiled and self.table.n_looks[0] >= COMPILE_AFTER and numba_is_installed():
            self.compile()
        counted = (np.array(flows), np.array(counts)) if self.is_compiled else (flows, counts)
        changed, rates = self._solver.settle(self.table, self.groups, *counted, patience)
        return None if len(rates) > len(changed) else (changed, rates)

    def fill(self, component: IntArray, flows: IntArray, counts: FloatArray) -> FloatArray:
        """Fill a component from nothing, in place of all that was there, and return the rates.

        Parameters
        ----------
        component
            All classes of the component.
        flows
            Those in flight, ascending, and how many flows of each.
        """
        problem, entries, links = self.wiring.problem(flows, counts)
        filled = progressive_filling(problem)
        table, cells = self.table, self.wiring.cells
        caps = np.array(table.cap)[component]
        emptied = np.unique([*cells[spans(self.wiring.starts, component)], *caps])
        self._solver.clear(table, self.groups, emptied if self.is_compiled else emptied.tolist())
        for flow in component.tolist():
            table.n_flows[flow] = 0.0
        held_back = filled.owners >= 0
        bottlenecks = np.where(held_back, cells[entries[filled.owners]], np.array(table.cap)[flows])
        for link, fair in zip(
            (*links.tolist(), *bottlenecks[~held_back].tolist()),
            (*filled.cell_levels.tolist(), *filled.levels[~held_back].tolist()),
            strict=True,
        ):
            table.fair[link] = fair
        columns = (flows, counts, bottlenecks)
        self._solver.lay(table, self.groups, *(columns if self.is_compiled else (column.tolist() for column in columns)))
        return filled.levels


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Flow classes in flight that share links with each other, directly or through others in flight, and with no other."""

    state: State
    rates: Mapping[int, float]


@dataclass(slots=True, eq=False)
class Solution:
    """Rates of a few flow classes in flight."""

    state: State
    groups: Mapping[int, Group]
    """Group of each class."""
    rates: Mapping[int, float]
    steps: dict[State, Step] = field(default_factory=dict[State, "Step"])
    """Step after each earlier change, keyed by the changed classes with their new flow counts."""

    def states(self) -> Sequence[State]:
        """Return the groups in flight."""
        return [group.state for group in dict.fromkeys(self.groups.values())]


class Change(NamedTuple):
    """Effect of flows that came and went."""

    flows: Sequence[int] | IntArray
    """Flow classes in flight with another rate or another count."""
    rates: Sequence[float] | FloatArray
    """Rate of each of them."""
    ended: Sequence[State]
    """Groups that are no more in flight."""
    begun: Sequence[State]
    """Groups in flight that were not."""


class Step(NamedTuple):
    """Way from one solution to another."""

    after: Solution
    change: Change


@dataclass(slots=True)
class Component:
    """Flow classes connected through links that they share, whether in flight or not."""

    number: int
    solution: Solution
    """Rates of the classes in flight, while they are few."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each class that has any."""
    many: bool = False
    """True while the rates are followed."""
    _state: State | None = None
    """Classes in flight with their flow counts, where they are many; None until asked for."""

    def count(self, changes: State) -> None:
        """Set how many flows of some classes are in flight."""
        for flow, count in changes:
            if count:
                self.counts[flow] = count
            else:
                self.counts.pop(flow, None)
        self._state = None

    def states(self) -> Sequence[State]:
        """Return the groups in flight; all together are one where they are many."""
        return ([self.state()] if self.counts else []) if self.many else self.solution.states()

    def state(self) -> State:
        """Return what is in flight."""
        if not self.many:
            return self.solution.state
        if self._state is None:
            self._state = tuple(sorted(self.counts.items()))
        return self._state


@dataclass(slots=True, kw_only=True)
class RateCache:
    """Max-min fair rates per weight of the flow classes of a wiring, as flows come and go."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the solver for many classes; None where that is possible and pays."""
    few: int = FEW
    """Up to so many classes in flight a component is solved from nothing."""
    components: Sequence[int] = field(init=False)
    """Component of each class."""
    _components: dict[int, Component] = field(default_factory=dict[int, Component])
    _kept: dict[State, Solution] = field(default_factory=dict[State, Solution])
    _groups: dict[State, Group] = field(default_factory=dict[State, Group])
    _cells: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """Cells of each class that was in flight beside another."""
    _shared: dict[tuple[int, int], bool] = field(default_factory=dict[tuple[int, int], bool])
    """For pairs of classes that were in flight together, whether they share a link."""
    _n_kept: int = 0
    """Rates in solutions and in steps from one to another."""
    _following: Following | None = None

    def __post_init__(self) -> None:
        """Look up components one by one."""
        self.components = self.wiring.components.tolist()

    def component(self, number: int) -> Component:
        """Return a component of the network."""
        found = self._components.get(number)
        if found is None:
            found = self._components[number] = Component(number, self._solution(()))
        return found

    def solve(self, state: State) -> Mapping[int, float]:
        """Return the rate of each class of a state."""
        return self._solution(state).rates

    def change(self, component: Component, changes: State) -> Change:
        """Return new rates: of all in flight that have another one now that some classes have other counts, and of these classes.

        Parameters
        ----------
        changes
            Pairs of a class and the number of its flows.
        """
        if not component.many:
            before = component.solution
            component.count(changes)
            if len(component.counts) > self.few:
                return self._fill(component, before.states())
            step = before.steps.get(changes)
            if step is None:
                step = self._step(component, changes)
            component.solution = step.after
            return step.change
        before = component.states()
        component.count(changes)
        if len(changes) > FEW and len(changes) > BULK * len(component.counts):
            return self._fill(component, before)
        flows, counts = [flow for flow, _ in changes], [float(count) for _, count in changes]
        settled = self._follow().settle(flows, counts, PATIENCE * len(self.wiring.first_link))
        if settled is None:
            return self._fill(component, before)
        self._go_on(component)
        return Change(*settled, before, component.states())

    def _step(self, component: Component, changes: State) -> Step:
        """Return where changes lead from a solution, and what they change; from then on the solution knows."""
        before, state = component.solution, tuple(sorted(component.counts.items()))
        after = self._kept.get(state) or self._solved(state, self._regrouped(before, changes))
        flows = {flow for flow, _ in changes}
        found = [flow for flow, rate in after.rates.items() if rate != before.rates.get(flow) or flow in flows]
        old, new = dict.fromkeys(before.groups.values()), dict.fromkeys(after.groups.values())
        ended, begun = [group.state for group in old if group not in new], [group.state for group in new if group not in old]
        self._keep(1 + len(found))
        step = before.steps[changes] = Step(after, Change(found, [after.rates[flow] for flow in found], ended, begun))
        return step

    def _regrouped(self, before: Solution, changes: State) -> list[Group]:
        """Return the groups in flight after changes: those that no change touches, and the others anew."""
        touched: dict[Group, None] = {}
        for flow, _ in changes:
            if flow in before.groups:
                touched[before.groups[flow]] = None
            else:
                touched.update((group, None) for other, group in before.groups.items() if group not in touched and self._meet(flow, other))
        counts = {flow: count for group in touched for flow, count in group.state} | dict(changes)
        rest = [group for group in dict.fromkeys(before.groups.values()) if group not in touched]
        return [*rest, *self._grouped(tuple(sorted((flow, count) for flow, count in counts.items() if count)))]

    def _grouped(self, state: State) -> list[Group]:
        """Return the groups of a state; one where it has many classes."""
        if len(state) > self.few:
            return [self._filled(state)]
        counts, left = dict(state), [flow for flow, _ in state]
        groups: list[Group] = []
        while left:
            members = [left.pop(0)]
            for flow in members:
                near = [other for other in left if self._meet(flow, other)]
                members += near
                left = [other for other in left if other not in near] if near else left
            found = tuple((flow, counts[flow]) for flow in sorted(members))
            group = self._groups.get(found)
            if group is None:
                self._keep(1 + len(found))
                group = self._groups[found] = self._filled(found)
            groups.append(group)
        return groups

    def _meet(self, flow: int, other: int) -> bool:
        """Return whether two classes share a link."""
        pair = (flow, other) if flow < other else (other, flow)
        shared = self._shared.get(pair)
        if shared is None:
            shared = self._shared[pair] = not self._cells_of(flow).isdisjoint(self._cells_of(other))
        return shared

    def _cells_of(self, flow: int) -> frozenset[int]:
        cells = self._cells.get(flow)
        if cells is None:
            first, last = self.wiring.starts[flow : flow + 2].tolist()
            cells = self._cells[flow] = frozenset(self.wiring.cells[first:last].tolist())
        return cells

    def _solution(self, state: State) -> Solution:
        return self._kept.get(state) or self._solved(state, self._grouped(state))

    def _solved(self, state: State, groups: Sequence[Group]) -> Solution:
        rates = {flow: rate for group in groups for flow, rate in group.rates.items()}
        solution = Solution(state, {flow: group for group in groups for flow, _ in group.state}, rates)
        if len(state) <= self.few:
            self._keep(1 + len(state))
            self._kept[state] = solution
        return solution

    def _filled(self, state: State) -> Group:
        """Return a group with the rates that filling from nothing gives."""
        flows, counts = _columns(state)
        filled = progressive_filling(self.wiring.problem(flows, counts)[0])
        return Group(state, dict(zip(flows.tolist(), filled.levels.tolist(), strict=True)))

    def _keep(self, n_rates: int) -> None:
        """Make room for rates to keep: with too many, all solutions and steps between them go, so that they do not grow without end."""
        self._n_kept += n_rates
        if self._n_kept <= N_KEPT:
            return
        for solution in (*self._kept.values(), *(component.solution for component in self._components.values())):
            solution.steps.clear()
        self._kept.clear()
        self._groups.clear()
        self._n_kept = n_rates

    def _go_on(self, component: Component) -> None:
        """Follow the rates of a component as long as anything is in flight."""
        component.many = len(component.counts) > 0
        if not component.many:
            component.solution = self._solution(())

    def _fill(self, component: Component, before: Sequence[State]) -> Change:
        self._go_on(component)
        flows, counts = _columns(component.state())
        rates = self._follow().fill(np.flatnonzero(self.wiring.components == component.number), flows, counts)
        return Change(flows, rates, before, component.states())

    def _follow(self) -> Following:
        if self._following is None:
            self._following = Following(self.wiring, self.compiled)
        return self._following


def _columns(state: State) -> tuple[IntArray, FloatArray]:
    return np.array([flow for flow, _ in state], dtype=np.int64), np.array([count for _, count in state], dtype=np.float64)
