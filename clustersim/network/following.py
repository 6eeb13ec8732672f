"""Fair rates of many flow classes, followed from change to change, with numba where it is installed."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec, module_from_spec
from inspect import isfunction
from itertools import accumulate
from types import ModuleType
from typing import Final

import numpy as np

from clustersim.network import maxmin
from clustersim.network.filling import progressive_filling, spans
from clustersim.network.maxmin import INF, FlowTable, Groups
from clustersim.network.wiring import Wiring
from clustersim.topology.cluster import FloatArray, IntArray

COMPILE_AFTER: Final = 50_000
"""Looks after which the compiled solver is loaded: half a second's work, and so is the loading."""
SPARE: Final = 1 << 22
"""Places in the arrays of the compiled solver that may stay empty because some routes are longer than others."""
Settled = tuple[Sequence[int] | IntArray, Sequence[float] | FloatArray]
"""Flow classes, and the rate of each."""


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


def table_of(wiring: Wiring) -> FlowTable:
    """Return the table of a wiring with nothing in flight, in lists. Behind its links stand the caps, and one link without bounds."""
    n_flows, n_links = len(wiring.limits), len(wiring.first_link)
    bounds, capped = wiring.starts.tolist(), np.flatnonzero(np.isfinite(wiring.limits)).tolist()
    last = n_links + len(capped)
    caps = dict(zip(capped, range(n_links, last), strict=True))
    own = [[caps[flow]] if flow in caps else [] for flow in range(n_flows)]
    link_classes, loads = wiring.link_classes.tolist(), wiring.loads.tolist()
    crossings = [*np.bincount(wiring.link_classes, minlength=n_links).tolist(), *[1] * len(capped)]
    n_places = len(link_classes) + len(capped)
    return FlowTable(
        route=[link_classes[bounds[flow] : bounds[flow + 1]] + own[flow] for flow in range(n_flows)],
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


def for_numba(table: FlowTable, groups: Groups) -> tuple[FlowTable, Groups]:
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
    return FlowTable(**columns), in_list(in_numba)  # pyright: ignore[reportArgumentType] - rows of a matrix are arrays


@dataclass(slots=True)
class Following:
    """Max-min fair rates of many flow classes, updated change by change; nothing is in flight at first."""

    wiring: Wiring
    compiled: bool | None
    """Whether to compile the solver; None where that is possible and pays."""
    table: FlowTable = field(init=False)
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
        if n_flows * longest <= len(self.wiring.link_classes) + SPARE:
            (self.table, self.groups), self._solver = for_numba(self.table, self.groups), compiled_solver()

    def settle(self, flows: list[int], counts: list[float], patience: int) -> Settled | None:
        """Set the number of flows in flight of some classes and bring all links into balance.

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

    def fill(self, component: IntArray, flows: list[int], counts: list[float]) -> list[float]:
        """Fill a component from nothing, in place of all that was there, and return the rates.

        Parameters
        ----------
        component
            All classes of the component.
        flows
            Those in flight, ascending, and how many flows of each.
        """
        rows, table = self.wiring.rows(flows, counts), self.table
        levels, full = progressive_filling(rows, self.wiring.capacity_bytes_per_s.tolist())
        emptied = np.unique([*self.wiring.link_classes[spans(self.wiring.starts, component)], *np.array(table.cap)[component]])
        self._solver.clear(table, self.groups, emptied if self.is_compiled else emptied.tolist())
        for flow in component.tolist():
            table.n_flows[flow] = 0.0
        bottlenecks = [
            int(table.cap[flow]) if level == limit else next(link for link, _ in entries if full.get(link) == level)
            for flow, level, (entries, limit) in zip(flows, levels, rows, strict=True)
        ]
        for link, fair in (*full.items(), *zip(bottlenecks, levels, strict=True)):
            table.fair[link] = fair
        if self.is_compiled:
            columns = (np.array(flows, dtype=np.int64), np.array(counts), np.array(bottlenecks, dtype=np.int64))
        else:
            columns = (flows, counts, bottlenecks)
        self._solver.put(table, self.groups, *columns)
        return levels
