"""The levels of ``balance.py`` once more, by compiled loops over arrays, where numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from types import FunctionType

import numpy as np

from clustersim.network import ripple
from clustersim.network.filling import progressive_filling, spans
from clustersim.network.strands import INF
from clustersim.network.table import N_CHANGED, TICK, Table
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """The loops of ``ripple.py``."""

    settle: Callable[[Table, IntArray, FloatArray, int], bool]
    lay: Callable[[Table, IntArray], None]
    clear: Callable[[Table, IntArray], None]


def numba_is_installed() -> bool:
    """Return whether the loops can be compiled; the extra ``fast`` brings what that needs."""
    return find_spec("numba") is not None


def compiled_loops_are_loaded() -> bool:
    """Return whether the compiled loops cost nothing any more."""
    return compiled_loops.cache_info().currsize > 0


@cache
def compiled_loops() -> Loops:
    """Return the loops compiled. The machine code is kept on disk from one process to the next; to load it takes a third of a second."""
    import numba

    names = dict(vars(ripple))
    for name, found in vars(ripple).items():
        if isinstance(found, FunctionType) and found.__module__ == ripple.__name__:
            # A copy that finds the compiled others under their names, instead of those that the interpreter runs.
            own = FunctionType(found.__code__, names, name)
            try:
                names[name] = numba.njit(cache=True)(own)
            except RuntimeError:
                # No folder to keep the machine code in.
                names[name] = numba.njit(own)
    return Loops(settle=names["settle"], lay=names["lay"], clear=names["clear"])


@dataclass(slots=True)
class CompiledBalance:
    """Levels of the kinds of a wiring; nothing is in flight at first. The twin of ``Balance``."""

    wiring: Wiring
    loops: Loops
    _table: Table = field(init=False)

    def __post_init__(self) -> None:
        """Lay the table."""
        wiring = self.wiring
        n_kinds, n_cells, n_entries = len(wiring.limits), len(wiring.first_link), len(wiring.cells)
        self._table = Table(
            starts=wiring.starts,
            cells=wiring.cells,
            kinds=np.repeat(np.arange(n_kinds), np.diff(wiring.starts)),
            units=wiring.loads,
            limits=wiring.limits,
            capacity=wiring.capacity_bytes_per_s,
            loads=np.zeros(n_entries),
            level=np.zeros(n_kinds),
            owner=np.full(n_kinds, -1),
            # Every ring begins as its own next.
            after=np.arange(n_entries + 2 * n_cells),
            before=np.arange(n_entries + 2 * n_cells),
            cell_level=np.full(n_cells, INF),
            others=np.zeros(n_cells),
            own=np.zeros(n_cells),
            waiting=np.zeros(n_cells, dtype=np.int64),
            looks=np.zeros(n_cells, dtype=np.int64),
            stamp=np.zeros(n_cells, dtype=np.int64),
            # Room for every kind to change a few times before it is cheaper to fill from nothing.
            changed=np.zeros(6 * n_kinds, dtype=np.int64),
            counters=np.zeros(2, dtype=np.int64),
        )

    @property
    def n_looks(self) -> int:
        """How often a cell was looked at."""
        return self._table.counters.item(TICK)

    def settle(self, kinds: list[int], counts: list[float], patience: int) -> bool:
        """Set how many flows of some kinds are in flight and bring all cells into balance; see ``Balance.settle``."""
        return self.loops.settle(self._table, np.array(kinds, dtype=np.int64), np.array(counts, dtype=np.float64), patience)

    def changes(self, also: list[int]) -> tuple[IntArray, FloatArray]:
        """Return the kinds that the last change gave another level, and some more, and the levels; a kind may come twice."""
        changed = self._table.changed[: self._table.counters.item(N_CHANGED)]
        kinds = np.concatenate((changed, np.array(also, dtype=np.int64)))
        return kinds, self._table.level[kinds]

    def refill(self, component: IntArray, kinds: IntArray, counts: FloatArray) -> FloatArray:
        """Fill a component from nothing, in place of all that was there, and return the levels; see ``Balance.refill``."""
        table, wiring = self._table, self.wiring
        problem, entries, cells = wiring.problem(kinds, counts)
        filled = progressive_filling(problem)
        everywhere = spans(wiring.starts, component)
        self.loops.clear(table, np.unique(wiring.cells[everywhere]))
        table.loads[everywhere] = table.level[component] = 0.0
        table.loads[entries] = problem.loads
        table.level[kinds] = filled.levels
        table.owner[kinds] = np.where(filled.owners >= 0, entries[filled.owners], -1)
        table.cell_level[cells] = filled.cell_levels
        self.loops.lay(table, kinds)
        return filled.levels
