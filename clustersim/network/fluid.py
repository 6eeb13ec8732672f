"""The state of everything in flight, between two changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clustersim.network.maxmin import FloatArray, max_min_rates
from clustersim.topology.load import Footprint

ROUND_OFF = 1e-12
"""A flow is finished when what is left is this share of its bytes, or of what its rate moves in all the time so far: both are round-off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkCells:
    """Links that no flow tells apart, once each: the rows of the max-min problem.

    Two links with the same capacity and the same flows of every kind are full at the same moment, so that one row serves for all.
    """

    flows: FloatArray
    """Shape (n_cells, n_kinds): flows of each kind on one link of the cell."""
    capacity_bytes_per_s: FloatArray
    n_links: FloatArray
    """Links in each cell."""
    first_link: tuple[int, ...]
    """The lowest link of each cell."""


def link_cells(kinds: Sequence[Footprint], capacity_bytes_per_s: FloatArray, labels: FloatArray) -> LinkCells:
    """Return the cells of the links that the kinds of flow use.

    Parameters
    ----------
    kinds
        The footprint of every kind of coupled flow that can be in flight.
    capacity_bytes_per_s
        Usable capacity of every link of the cluster.
    labels
        One number for each link of the cluster; links with different labels are kept apart (the tier, for reporting).
    """
    used = np.unique(np.concatenate([kind.link_ids for kind in kinds])) if kinds else np.zeros(0, dtype=np.int64)
    table = np.zeros((len(used), len(kinds) + 2))
    table[:, -2] = capacity_bytes_per_s[used]
    table[:, -1] = labels[used]
    for column, kind in enumerate(kinds):
        table[np.searchsorted(used, kind.link_ids), column] = kind.flows
    if not len(used):
        return LinkCells(flows=table[:, :-2], capacity_bytes_per_s=table[:, -2], n_links=np.zeros(0), first_link=())
    cells, first, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return LinkCells(
        flows=np.ascontiguousarray(cells[:, :-2]),
        capacity_bytes_per_s=cells[:, -2].copy(),
        n_links=counts.astype(np.float64),
        first_link=tuple(int(link) for link in used[first]),
    )


@dataclass(slots=True)
class FluidNetwork:
    """Flows in flight and the time at which the next one ends. Knows nothing of events: the engine asks and tells.

    Rates depend only on which kinds are in flight and how many of each, so that a solution is kept and found again.
    """

    cells: LinkCells
    now_s: float = 0.0
    _left_bytes: dict[int, float] = field(default_factory=dict[int, float])
    _size_bytes: dict[int, float] = field(default_factory=dict[int, float])
    _kind: dict[int, int] = field(default_factory=dict[int, int])
    _rates: Mapping[int, float] = field(default_factory=dict[int, float])
    _solved: dict[tuple[int, ...], dict[int, float]] = field(default_factory=dict[tuple[int, ...], dict[int, float]])
    _carried: dict[tuple[int, ...], float] = field(default_factory=dict[tuple[int, ...], float])

    def advance(self, now_s: float) -> None:
        """Let time pass: everything in flight progresses at its rate."""
        elapsed_s = now_s - self.now_s
        self.now_s = now_s
        if elapsed_s <= 0.0 or not self._left_bytes:
            return
        key = self._key()
        self._carried[key] = self._carried.get(key, 0.0) + elapsed_s
        for flow, left_bytes in self._left_bytes.items():
            self._left_bytes[flow] = left_bytes - self._rates[self._kind[flow]] * elapsed_s

    def start(self, flow: int, kind: int, size_bytes: float) -> None:
        """Put a flow in flight; the caller has advanced the time and calls ``share`` after the last change of the instant."""
        self._left_bytes[flow] = size_bytes
        self._size_bytes[flow] = size_bytes
        self._kind[flow] = kind

    def finished(self) -> list[int]:
        """Take out and return the flows that have nothing left, in the order in which they started."""
        done = [
            flow
            for flow, left in self._left_bytes.items()
            if left <= ROUND_OFF * max(self._size_bytes[flow], self._rates.get(self._kind[flow], 0.0) * self.now_s)
        ]
        for flow in done:
            del self._left_bytes[flow], self._size_bytes[flow], self._kind[flow]
        return done

    def share(self) -> None:
        """Give everything in flight its max-min fair rate."""
        self._rates = self.rates(self._key()) if self._left_bytes else {}

    def next_end_s(self) -> float:
        """Return when the next flow ends at the present rates, in seconds; infinite when none is in flight."""
        return min((self.now_s + left / self._rates[self._kind[flow]] for flow, left in self._left_bytes.items()), default=float("inf"))

    def rates(self, kinds: tuple[int, ...]) -> Mapping[int, float]:
        """Return the rate of one flow of each kind when ``kinds`` (ascending, repeated as often as in flight) share the links."""
        solution = self._solved.get(kinds)
        if solution is None:
            distinct = sorted(dict.fromkeys(kinds))
            counts = np.array([kinds.count(kind) for kind in distinct], dtype=np.float64)
            columns = self.cells.flows[:, distinct] * counts
            rates = max_min_rates(columns, self.cells.capacity_bytes_per_s)
            solution = self._solved[kinds] = dict(zip(distinct, rates.tolist(), strict=True))
        return solution

    def occupancy(self) -> Mapping[tuple[int, ...], float]:
        """Return for how many seconds each combination of kinds was in flight."""
        return self._carried

    def _key(self) -> tuple[int, ...]:
        return tuple(sorted(self._kind.values()))
