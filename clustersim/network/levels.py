"""Levels of everything in flight: solved anew only where something changed, and found again where they were solved before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from clustersim.network.balance import Balance
from clustersim.network.compiled import CompiledBalance, compiled_loops, compiled_loops_are_loaded, numba_is_installed
from clustersim.network.filling import progressive_filling
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray

COMPILE_AFTER: Final = 50_000
"""Looks after which the compiled loops are loaded: half a second's worth, and so is the loading. Who needed so many may need many more."""
State = tuple[tuple[int, int], ...]
"""Kinds in flight and how many flows of each, ascending."""
Changes = tuple[Sequence[int] | IntArray, Sequence[float] | FloatArray]
"""Kinds, and the level of each."""

FEW: Final = 32
"""Up to so many kinds in flight a part of the network is solved from nothing, and the solution kept; a replay comes back to it."""
N_KEPT: Final = 1 << 18
"""Levels that are kept, in solutions and in steps from one to another; with more all go."""
PATIENCE: Final = 4
"""Looks for each cell after which following a change has cost more than filling from nothing would have."""
BULK: Final = 0.25
"""Share of the kinds in flight that change in one instant from which on filling from nothing is cheaper at once."""


@dataclass(slots=True, eq=False)
class Solution:
    """Levels of a few kinds in flight."""

    state: State
    levels: Mapping[int, float]
    steps: dict[State, tuple[Solution, Changes]] = field(default_factory=dict[State, "tuple[Solution, Changes]"])
    """Where changes led that came before, given as kinds with how many flows of each there are now, and what they changed."""


@dataclass(slots=True)
class Part:
    """Kinds connected through links that they share, whether in flight or not."""

    component: int
    solution: Solution
    """Of the kinds in flight, while they are few."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each kind that has any."""
    many: bool = False
    """True while the levels stand in the balance."""
    _state: State | None = None
    """Of many kinds."""

    def count(self, changes: State) -> None:
        """Set how many flows of some kinds are in flight."""
        for kind, count in changes:
            if count:
                self.counts[kind] = count
            else:
                self.counts.pop(kind, None)
        self._state = None

    def state(self) -> State:
        """Return what is in flight."""
        if not self.many:
            return self.solution.state
        if self._state is None:
            self._state = tuple(sorted(self.counts.items()))
        return self._state


@dataclass(slots=True, kw_only=True)
class Levels:
    """Max-min fair levels of the kinds of a wiring, as flows come and go."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the loops for many kinds; None where that is possible and pays."""
    few: int = FEW
    """Up to so many kinds in flight a part is solved from nothing."""
    components: Sequence[int] = field(init=False)
    """Of each kind."""
    _parts: dict[int, Part] = field(default_factory=dict[int, Part])
    _kept: dict[State, Solution] = field(default_factory=dict[State, Solution])
    _n_kept: int = 0
    """Levels in solutions and in steps from one to another."""
    _balance: Balance | CompiledBalance | None = None

    def __post_init__(self) -> None:
        """Look up components one by one."""
        self.components = self.wiring.components.tolist()

    def part(self, component: int) -> Part:
        """Return the part of the network that a component is."""
        part = self._parts.get(component)
        if part is None:
            part = self._parts[component] = Part(component, self._solution(()))
        return part

    def solve(self, state: State) -> Mapping[int, float]:
        """Return the level of each kind of a state."""
        return self._solution(state).levels

    def change(self, part: Part, changes: State) -> Changes:
        """Return new levels: of all in flight that have another one now that some kinds have other counts, and of these kinds.

        Parameters
        ----------
        changes
            Pairs of a kind and the number of its flows.
        """
        part.count(changes)
        if not part.many:
            if len(part.counts) > self.few:
                return self._refill(part)
            step = part.solution.steps.get(changes)
            if step is None:
                step = self._step(part, changes)
            part.solution, changed = step
            return changed
        if (len(changes) > FEW and len(changes) > BULK * len(part.counts)) or self._compile():
            return self._refill(part)
        balance, kinds = self._open_balance(), [kind for kind, _ in changes]
        if not balance.settle(kinds, [float(count) for _, count in changes], PATIENCE * len(self.wiring.first_link)):
            return self._refill(part)
        self._go_on(part)
        return balance.changes([kind for kind in kinds if kind in part.counts])

    def _step(self, part: Part, changes: State) -> tuple[Solution, Changes]:
        """Return where changes lead from a solution, and what they change; from then on the solution knows."""
        before, after = part.solution, self._solution(tuple(sorted(part.counts.items())))
        kinds = {kind for kind, _ in changes}
        found = [kind for kind, level in after.levels.items() if level != before.levels.get(kind) or kind in kinds]
        self._keep(1 + len(found))
        step = before.steps[changes] = after, (found, [after.levels[kind] for kind in found])
        return step

    def _solution(self, state: State) -> Solution:
        solution = self._kept.get(state)
        if solution is None:
            kinds, counts = _columns(state)
            filled = progressive_filling(self.wiring.problem(kinds, counts)[0])
            solution = Solution(state, dict(zip(kinds.tolist(), filled.levels.tolist(), strict=True)))
            if len(state) <= self.few:
                self._keep(1 + len(state))
                self._kept[state] = solution
        return solution

    def _keep(self, n_levels: int) -> None:
        """Make room for levels to keep: with too many, all solutions and steps between them go, so that they do not grow without end."""
        self._n_kept += n_levels
        if self._n_kept <= N_KEPT:
            return
        for solution in (*self._kept.values(), *(part.solution for part in self._parts.values())):
            solution.steps.clear()
        self._kept.clear()
        self._n_kept = n_levels

    def _go_on(self, part: Part) -> None:
        """Keep the levels of a part in the balance as long as anything is in flight."""
        part.many = len(part.counts) > 0
        if not part.many:
            part.solution = self._solution(())

    def _refill(self, part: Part) -> Changes:
        self._go_on(part)
        kinds, counts = _columns(part.state())
        component = np.flatnonzero(self.wiring.components == part.component)
        return kinds, self._open_balance().refill(component, kinds, counts)

    def _open_balance(self) -> Balance | CompiledBalance:
        if self._balance is None:
            compiled = compiled_loops_are_loaded() if self.compiled is None else self.compiled
            self._balance = CompiledBalance(self.wiring, compiled_loops()) if compiled else Balance(self.wiring)
        return self._balance

    def _compile(self) -> bool:
        """Go over to the compiled loops when that begins to pay, and return whether that was now."""
        balance = self._balance
        if self.compiled is not None or not isinstance(balance, Balance) or balance.n_looks < COMPILE_AFTER or not numba_is_installed():
            return False
        self._balance = CompiledBalance(self.wiring, compiled_loops())
        for part in self._parts.values():
            if part.many:
                self._refill(part)
        return True


def _columns(state: State) -> tuple[IntArray, FloatArray]:
    return np.array([kind for kind, _ in state], dtype=np.int64), np.array([count for _, count in state], dtype=np.float64)
