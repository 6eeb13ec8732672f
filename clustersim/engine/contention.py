"""Contention: tasks that overlap on a link, as far as the order of a program says and in a replay that has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.engine.precedence import contended_passes, order_of
from clustersim.engine.uses import Uses, uses_of
from clustersim.program.program import Program
from clustersim.program.tasks import Compute, Lane
from clustersim.topology.cluster import FloatArray, IntArray

Kinds = tuple[int, ...]

MOST_ALONE: Final = 0.1
"""Largest share of the tasks of one use that may be contended while its other tasks are taken to be alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals in which some tasks are in progress, in seconds."""

    starts_s: FloatArray
    ends_s: FloatArray
    """Starts and ends of the tasks that take any time, each in order."""
    at_s: FloatArray
    """Moments of the tasks that take none, in order."""

    def meets(self, start_s: FloatArray, end_s: FloatArray) -> NDArray[np.bool_]:
        """Return whether any is in progress within each of some stretches of time, ends left out."""
        n_begun, n_over = np.searchsorted(self.starts_s, end_s), np.searchsorted(self.ends_s, start_s, side="right")
        if not len(self.at_s):
            return n_begun > n_over
        return (n_begun > n_over) | (np.searchsorted(self.at_s, end_s) > np.searchsorted(self.at_s, start_s, side="right"))


def intervals_of(start_s: FloatArray, end_s: FloatArray, tasks: IntArray) -> Intervals:
    """Return the intervals of some of all tasks."""
    starts_s, ends_s = start_s[tasks], end_s[tasks]
    lasts = ends_s > starts_s
    return Intervals(np.sort(starts_s[lasts]), np.sort(ends_s[lasts]), np.sort(starts_s[~lasts]))


@dataclass(slots=True, kw_only=True)
class Contention:
    """Tasks of a program that can overlap with others on a link.

    Two tasks of one lane never overlap. Two flow classes that share a link can therefore only overlap where no lane has all tasks with
    either of them. Where none of those that are left share a link, the order of tasks does not matter.
    """

    program: Program
    uses: Uses
    kinds: Sequence[Kinds]
    """Flow classes of each use."""
    common: NDArray[np.bool_]
    """Shape (n_kinds, n_kinds): pairs of flow classes that share a link."""
    others: Sequence[int]
    """Flow classes of other traffic, which can be in flight at any time."""
    _members: list[list[int]] = field(default_factory=list[list[int]])
    _rows: dict[int, IntArray] = field(default_factory=dict[int, IntArray])
    """The members of each use that was asked about."""
    _known: dict[tuple[Kinds, frozenset[Lane]], tuple[int, ...]] = field(
        default_factory=dict[tuple[Kinds, frozenset[Lane]], tuple[int, ...]]
    )
    """Uses that could meet what has these lanes, and shares a link with these kinds."""
    _lanes: list[frozenset[Lane]] = field(init=False)
    """Lanes of each use."""
    _met: list[Kinds] = field(init=False)
    """For each use, the kinds of other uses that share a link with it, and no lane."""

    def __post_init__(self) -> None:
        """Find out what could meet whatever the order is."""
        users: dict[int, list[int]] = {}
        for use, kinds in enumerate(self.kinds):
            for kind in kinds:
                users.setdefault(kind, []).append(use)
        lanes = self._lanes = [frozenset(task.lanes) for task in self.uses.tasks]
        chains = {kind: reduce(frozenset[Lane].intersection, (lanes[use] for use in found)) for kind, found in users.items()}
        used = np.zeros(len(self.common), dtype=np.bool_)
        used[list(users)] = True
        known: dict[tuple[Kinds, frozenset[Lane]], Kinds] = {}
        self._met = []
        for kinds, own in zip(self.kinds, lanes, strict=True):
            if kinds and (kinds, own) not in known:
                near: list[int] = np.flatnonzero(self.common[list(kinds)].any(axis=0) & used).tolist()
                known[kinds, own] = tuple(kind for kind in near if not own & chains[kind])
            self._met.append(known[kinds, own] if kinds else ())

    def passes(self) -> frozenset[int]:
        """Return the passes that other traffic can meet on the links of their own collectives."""
        are_passes = [isinstance(task.action, Compute) for task in self.uses.tasks]
        used = {kind for kinds, is_pass in zip(self.kinds, are_passes, strict=True) if is_pass for kind in kinds}
        met = [[kind for kind in kinds if kind in used] for kinds in self._met]
        reached = [
            index for use, kinds in enumerate(self.kinds) if are_passes[use] and self._is_disturbed(kinds) for index in self._of(use)
        ]
        if not any(met):
            return frozenset(reached)
        rivals = ((index, met[use]) for index, use in enumerate(self.uses.of_task) if met[use])
        inline = {index: self.kinds[use] for index, use in enumerate(self.uses.of_task) if are_passes[use] and self.kinds[use]}
        return contended_passes(self.program, rivals, inline, order=order_of(self.program)).union(reached)

    def all(self) -> frozenset[int]:
        """Return the passes that other traffic can meet, and all transfers and collectives beside passes that share links with others."""
        beside = (use for use, task in enumerate(self.uses.tasks) if not isinstance(task.action, Compute))
        shared = [use for use in beside if self._met[use] or self._is_disturbed(self.kinds[use])]
        return self.passes().union(*map(self._of, shared))

    def meetings(self, start_s: Sequence[float], end_s: Sequence[float]) -> frozenset[int]:
        """Return the tasks that are in progress at the same time as others that they can meet.

        Parameters
        ----------
        start_s, end_s
            Of every task.
        """
        starts, ends = np.array(start_s), np.array(end_s)
        # Uses with the same rivals ask for the same moments.
        moments: dict[tuple[int, ...], Intervals] = {}
        found: set[int] = set()
        for use in range(len(self._met)):
            rivals = self._rivals(use)
            if not rivals:
                continue
            if rivals not in moments:
                moments[rivals] = intervals_of(starts, ends, np.concatenate([self._rows_of(each) for each in rivals]))
            own = self._rows_of(use)
            hit = moments[rivals].meets(starts[own], ends[own])
            # Where much of a use meets others, times will shift, and more of it will.
            found.update((own if hit.sum() > MOST_ALONE * len(own) else own[hit]).tolist())
        return frozenset(found)

    def _of(self, use: int) -> Sequence[int]:
        """Return the tasks of a use."""
        if not self._members:
            self._members = [[] for _ in self.uses.tasks]
            for index, each in enumerate(self.uses.of_task):
                self._members[each].append(index)
        return self._members[use]

    def _is_disturbed(self, kinds: Kinds) -> bool:
        return bool(self.others and kinds) and bool(self.common[np.ix_(list(kinds), list(self.others))].any())

    def _rows_of(self, use: int) -> IntArray:
        """Return the tasks of a use as an array."""
        rows = self._rows.get(use)
        if rows is None:
            rows = self._rows[use] = np.array(self._of(use), dtype=np.int64)
        return rows

    def _rivals(self, use: int) -> tuple[int, ...]:
        """Return the uses that share a link with one, and no lane."""
        met, own, lanes = self._met[use], self._lanes[use], self._lanes
        if not met:
            return ()
        rivals = self._known.get((met, own))
        if rivals is None:
            near = frozenset(met)
            uses = (each for each, kinds in enumerate(self.kinds) if not near.isdisjoint(kinds) and own.isdisjoint(lanes[each]))
            rivals = self._known[met, own] = tuple(uses)
        return rivals


def contention_of(program: Program, kinds: Mapping[int, Kinds], common: NDArray[np.bool_], others: Iterable[int] = ()) -> Contention:
    """Return the tasks of a program and what they put on links, given for the identity of each action."""
    uses = uses_of(program)
    of_use = [kinds[id(task.action)] for task in uses.tasks]
    return Contention(program=program, uses=uses, kinds=of_use, common=common, others=tuple(others))
