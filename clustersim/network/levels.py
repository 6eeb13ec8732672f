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
N_KEPT: Final = 4096
"""Solutions that are kept; the oldest goes first."""
PATIENCE: Final = 4
"""Looks for each cell after which following a change has cost more than filling from nothing would have."""
BULK: Final = 0.25
"""Share of the kinds in flight that change in one instant from which on filling from nothing is cheaper at once."""


@dataclass(slots=True)
class Part:
    """Kinds connected through links that they share, whether in flight or not."""

    component: int
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each kind that has any."""
    levels: Mapping[int, float] = field(default_factory=dict[int, float])
    """Of these kinds, while they are few."""
    many: bool = False
    """True while the levels stand in the balance."""
    _state: State | None = None

    def count(self, kinds: Mapping[int, int]) -> None:
        """Set how many flows of some kinds are in flight."""
        for kind, count in kinds.items():
            if count:
                self.counts[kind] = count
            else:
                self.counts.pop(kind, None)
        self._state = None

    def state(self) -> State:
        """Return what is in flight."""
        if self._state is None:
            self._state = tuple(sorted(self.counts.items()))
        return self._state


@dataclass(slots=True, kw_only=True)
class Levels:
    """Max-min fair levels of the kinds of a wiring, as flows come and go."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the loops for many kinds; None where that is possible and pays."""
    _parts: dict[int, Part] = field(default_factory=dict[int, Part])
    _kept: dict[State, Mapping[int, float]] = field(default_factory=dict[State, Mapping[int, float]])
    _balance: Balance | CompiledBalance | None = None

    def part(self, component: int) -> Part:
        """Return the part of the network that a component is."""
        part = self._parts.get(component)
        if part is None:
            part = self._parts[component] = Part(component)
        return part

    def solve(self, state: State) -> Mapping[int, float]:
        """Return the level of each kind of a state."""
        levels = self._kept.get(state)
        if levels is None:
            kinds, counts = _columns(state)
            filled = progressive_filling(self.wiring.problem(kinds, counts)[0])
            levels = dict(zip(kinds.tolist(), filled.levels.tolist(), strict=True))
            if len(state) <= FEW:
                if len(self._kept) >= N_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[state] = levels
        return levels

    def change(self, part: Part, kinds: list[int]) -> Changes:
        """Return new levels: of all in flight that have another one now that some kinds have other counts, and of these kinds."""
        if not part.many:
            if len(part.counts) > FEW:
                return self._refill(part)
            before, part.levels = part.levels, self.solve(part.state())
            found = [kind for kind, level in part.levels.items() if level != before.get(kind) or kind in kinds]
            return found, [part.levels[kind] for kind in found]
        if (len(kinds) > FEW and len(kinds) > BULK * len(part.counts)) or self._compile():
            return self._refill(part)
        balance = self._open_balance()
        counts = [float(part.counts.get(kind, 0)) for kind in kinds]
        if not balance.settle(kinds, counts, PATIENCE * len(self.wiring.first_link)):
            return self._refill(part)
        part.many = len(part.counts) > 0
        return balance.changes([kind for kind in kinds if kind in part.counts])

    def _refill(self, part: Part) -> Changes:
        part.many, part.levels = len(part.counts) > 0, {}
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
