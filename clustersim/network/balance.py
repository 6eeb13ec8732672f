"""Max-min fair levels kept up to date: a change is followed from cell to cell, as far as it reaches.

A cell is *in balance* if the kinds that it owns, at its level, and the strands of others on it (``strands.py``) fill it, no kind on
it has a higher level, and none that it owns has a lower one open to it elsewhere. When all cells are in balance the levels are max-min
fair. So after a change only cells out of balance are looked at, and each one that moves puts those out of balance that it has strands on.

What happens to one cell changes nothing below the lower of its levels before and after. Cells are therefore taken
in the order of that level, and most are looked at once. In particular, when a flow departs, what has a lower level keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from typing import Final

import numpy as np

from clustersim.network.filling import progressive_filling
from clustersim.network.strands import INF, Cells, Strands
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray

SAME: Final = 1e-13
"""Two levels are one if they differ by less than this share: sums of a hundred rates agree no better."""
WEIGH_EVERY: Final = 16
"""Looks at a cell between two in which its strands are added up anew, instead of following their sum change by change."""
SMALL_SHARE: Final = 0.05
"""They are added up anew as well if the cell's own kinds have less than this of its capacity, because of what cancels."""
FURTHER: Final = 1.05
"""A cell on its way up looks so much beyond the new level for kinds that are held back elsewhere."""

Heap = list[tuple[float, int]]


@dataclass(slots=True)
class Balance:
    """Levels of the kinds of a wiring; nothing is in flight at first."""

    wiring: Wiring
    n_looks: int = 0
    """How often a cell was looked at."""
    _strands: Strands = field(init=False)
    _looks: list[int] = field(init=False)
    """Looks at each cell since its strands were added up."""
    _waiting: list[bool] = field(init=False)
    """Whether a cell waits for a look."""
    _fresh: Cells = field(default_factory=Cells)
    """Cells that are full only since a kind entered, at a level that is a guess."""
    _moved: Cells = field(default_factory=Cells)
    """Cells with another level since the last change began."""
    _handed: list[int] = field(default_factory=list[int])
    """Kinds with another owner since then."""

    def __post_init__(self) -> None:
        """Lay the tables."""
        n_cells = len(self.wiring.first_link)
        self._strands, self._looks, self._waiting = Strands(self.wiring), [0] * n_cells, [False] * n_cells

    def settle(self, kinds: list[int], counts: list[float], patience: int) -> bool:
        """Set how many flows of some kinds are in flight and bring all cells into balance.

        Returns
        -------
        bool
            False, with cells left out of balance, when the change reaches further than ``patience`` looks.
        """
        heap, last = Heap(), self.n_looks + patience
        self._moved.clear()
        self._handed.clear()
        for kind, count in zip(kinds, counts, strict=True):
            if loads := self._strands.loads[kind]:
                self._strands.take(kind)
                self._strands.set_count(kind, 0.0)
                self._touch(loads, heap)
            if count:
                self._enter(kind, count, heap)
        while heap:
            if self.n_looks == last:
                return False
            _, cell = heappop(heap)
            self._waiting[cell] = False
            self._look(cell, heap)
        return True

    def changes(self, also: list[int]) -> tuple[IntArray, FloatArray]:
        """Return the kinds that the last change gave another level, and some more, and the levels; a kind may come twice."""
        level, owner, owned = self._strands.level, self._strands.owner, self._strands.owned
        kinds = [*also, *self._handed]
        levels = [level[owner[kind]] for kind in kinds]
        for cell in self._moved:
            kinds += owned[cell]
            levels += [level[cell]] * len(owned[cell])
        return np.array(kinds, dtype=np.int64), np.array(levels)

    def refill(self, component: IntArray, kinds: IntArray, counts: FloatArray) -> FloatArray:
        """Fill a component from nothing, in place of all that was there, and return the levels.

        Parameters
        ----------
        component
            All kinds of the component.
        kinds
            Those in flight, ascending, and how many flows of each.
        """
        strands = self._strands
        problem, entries, cells = self.wiring.problem(kinds, counts)
        filled = progressive_filling(problem)
        for kind in component.tolist():
            strands.clear(kind)
            for cell in strands.cells_of(kind):
                self._waiting[cell] = False
                self._fresh.pop(cell, None)
        for cell, level in zip(cells.tolist(), filled.cell_levels.tolist(), strict=True):
            strands.level[cell] = level
        for place, (kind, owner) in enumerate(zip(kinds.tolist(), filled.owners.tolist(), strict=True)):
            strands.set_count(kind, counts.item(place))
            strands.put(kind, self.wiring.cells.item(entries.item(owner)) if owner >= 0 else strands.cap_cell[kind])
        return filled.levels

    def _enter(self, kind: int, count: float, heap: Heap) -> None:
        """Put a kind in flight at the lowest level on its way; if nothing there is full it fills what has least left."""
        strands = self._strands
        strands.set_count(kind, count)
        loads, level = strands.loads[kind], strands.level
        owner = strands.cap_cell.get(kind, -1)
        lowest = level[owner] if owner >= 0 else INF
        for cell in loads:
            if level[cell] < lowest:
                lowest, owner = level[cell], cell
        if owner < 0:
            rooms = {cell: max(0.0, (strands.capacity[cell] - strands.others[cell]) / load) for cell, load in loads.items()}
            owner = min(rooms, key=rooms.__getitem__)
            level[owner] = rooms[owner]
            self._fresh[owner] = None
            if not self._waiting[owner]:
                self._waiting[owner] = True
                heappush(heap, (0.0, owner))
        strands.put(kind, owner)
        self._handed.append(kind)
        self._touch(loads, heap)

    def _touch(self, touched: Iterable[int], heap: Heap) -> None:
        """Let cells that are out of balance wait for a look, in the order of the lower of their levels before and after."""
        strands, waiting = self._strands, self._waiting
        level, others, own, capacity, owned = strands.level, strands.others, strands.own, strands.capacity, strands.owned
        for cell in touched:
            if waiting[cell]:
                continue
            old = key = level[cell]
            if old == INF:
                if others[cell] <= capacity[cell] * (1.0 + SAME):
                    continue
                key = 0.0
            elif owned[cell]:
                new = (capacity[cell] - others[cell]) / own[cell]
                if new < old:
                    if old - new <= SAME * old:
                        continue
                    key = new
                elif new - old <= SAME * old:
                    continue
            waiting[cell] = True
            heappush(heap, (key, cell))

    def _look(self, cell: int, heap: Heap) -> None:
        """Bring a cell into balance, and touch all that this reaches."""
        strands, fresh = self._strands, cell in self._fresh
        owned, others, capacity = strands.owned[cell], strands.others, strands.capacity[cell]
        self.n_looks += 1
        self._looks[cell] += 1
        if not owned or self._looks[cell] >= WEIGH_EVERY or capacity - others[cell] < SMALL_SHARE * capacity:
            self._looks[cell] = 0
            strands.weigh(cell)
        old, touched = strands.level[cell], Cells()
        if owned:
            new = (capacity - others[cell]) / strands.own[cell]
            if new < old or fresh:
                new = self._claim(cell, min(new, old), touched)
            if new > old or fresh:
                new = self._release(cell, new, touched)
        elif others[cell] > capacity * (1.0 + SAME):
            old = strands.level[cell] = 0.0
            new = self._claim(cell, self._overflow(cell), touched)
        else:
            new = INF
        if fresh:
            del self._fresh[cell]
        if touched or abs(new - old) > SAME * old:
            strands.move(cell, new)
            self._moved[cell] = None
            self._touch(strands.strands[cell], heap)
            self._touch(touched, heap)

    def _overflow(self, cell: int) -> float:
        """Return where a step of Newton's method leads from the highest level on an overbooked cell that owns nothing."""
        guests, level = self._strands.guests[cell], self._strands.level
        top = max(level[owner] for owner in guests)
        steep = fsum(load for owner, load in guests.items() if level[owner] == top)
        # Low enough for the highest to be claimed even where the overflow is mere round-off.
        return min(top + (self._strands.capacity[cell] - self._strands.others[cell]) / steep, top * (1.0 - 4.0 * SAME))

    def _claim(self, cell: int, start: float, touched: Cells) -> float:
        """Make kinds the cell's own that are on it at a higher level, and return the level that it then has.

        What the kinds take together is a concave function of the level, so that Newton's method steps from anywhere to the left of
        the solution and from there up to it. ``start`` is where the first step leads. Each further one gives back what it passes.
        """
        strands = self._strands
        level, loads, owned, capacity = strands.level, strands.loads, strands.owned, strands.capacity[cell]
        others, own, highest = strands.others[cell], strands.own[cell], start * (1.0 + SAME)
        above = [owner for owner in strands.guests[cell] if level[owner] > highest]
        claimed = [(level[owner], kind, loads[kind][cell]) for owner in above for kind in owned[owner] if cell in loads[kind]]
        for theirs, _, load in claimed:
            others -= load * theirs
            own += load
        new, n_claimed = (capacity - others) / own, -1
        while n_claimed != len(claimed):
            n_claimed, lowest, kept = len(claimed), new * (1.0 - SAME), list[tuple[float, int, float]]()
            for theirs, kind, load in claimed:
                if theirs < lowest:
                    others += load * theirs
                    own -= load
                else:
                    kept.append((theirs, kind, load))
            claimed, new = kept, (capacity - others) / own
        for _, kind, _ in claimed:
            strands.hand_over(kind, cell, touched)
            self._handed.append(kind)
        return new

    def _release(self, cell: int, new: float, touched: Cells) -> float:
        """Hand kinds over that the cell owns and that are held back elsewhere below its new level; return the level that it then has.

        Newton's method again: each step leads to a level that is too low or right, and those who leave make room for the next.
        """
        strands, looked_to = self._strands, -1.0
        while looked_to < new < INF:
            # Those who leave make room and take the level further up, but seldom beyond this.
            looked_to = FURTHER * new
            staying, n_staying = self._held_back(cell, looked_to), -1
            while n_staying != len(staying):
                n_staying, lowest, kept = len(staying), new * (1.0 - SAME), list[tuple[float, int, int]]()
                for open_to, kind, owner in staying:
                    if open_to < lowest:
                        strands.hand_over(kind, owner, touched)
                        self._handed.append(kind)
                    else:
                        kept.append((open_to, kind, owner))
                if len(kept) < n_staying:
                    new = (strands.capacity[cell] - strands.others[cell]) / strands.own[cell] if strands.owned[cell] else INF
                staying = kept
        return new

    def _held_back(self, cell: int, below: float) -> list[tuple[float, int, int]]:
        """Return the owned kinds that have a lower level than this elsewhere: that level, the kind, and who would own it."""
        strands, found = self._strands, list[tuple[float, int, int]]()
        level, loads, cap_cell = strands.level, strands.loads, strands.cap_cell
        if not cap_cell and not any(level[other] < below for other in strands.strands[cell]):
            return found
        for kind in strands.owned[cell]:
            owner = cap_cell.get(kind, -1)
            lowest = level[owner] if owner >= 0 else INF
            for other in loads[kind]:
                if level[other] < lowest and other != cell:
                    lowest, owner = level[other], other
            if lowest < below:
                found.append((lowest, kind, owner))
        return found
