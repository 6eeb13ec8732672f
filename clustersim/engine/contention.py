"""Contention: tasks that overlap on a link, by the order of a program and by a finished replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.engine.precedence import contended_passes
from clustersim.engine.program_graph import Graph
from clustersim.program.tasks import Compute, Lane
from clustersim.topology.cluster import FloatArray, IntArray

FlowClasses = tuple[int, ...]

MOST_ALONE: Final = 0.1
"""Largest share of the tasks of one template that may be contended while its other tasks count as uncontended."""


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

    graph: Graph
    job: str
    """Name of the job; empty for the scenario's own."""
    flow_classes: Sequence[FlowClasses]
    """Flow classes of each template."""
    common: NDArray[np.bool_]
    """Shape (n_flow_classes, n_flow_classes): pairs of flow classes that share a link."""
    others: Sequence[int]
    """Flow classes of other traffic, which can be in flight at any time."""
    _known: dict[tuple[FlowClasses, frozenset[Lane]], tuple[int, ...]] = field(
        default_factory=dict[tuple[FlowClasses, frozenset[Lane]], tuple[int, ...]]
    )
    """Templates that could overlap with tasks on these lanes, and share a link with these flow classes."""
    _lanes: list[frozenset[Lane]] = field(init=False)
    """Lanes of each template."""
    _met: list[FlowClasses] = field(init=False)
    """For each template, the flow classes of other templates that share a link with it, and no lane."""

    def __post_init__(self) -> None:
        """Find the tasks that could overlap in any order."""
        users: dict[int, list[int]] = {}
        for template, flow_classes in enumerate(self.flow_classes):
            for flow_class in flow_classes:
                users.setdefault(flow_class, []).append(template)
        lanes = self._lanes = [frozenset(task.lanes) for task in self.graph.templates.tasks]
        chains = {
            flow_class: reduce(frozenset[Lane].intersection, (lanes[template] for template in found)) for flow_class, found in users.items()
        }
        used = np.zeros(len(self.common), dtype=np.bool_)
        used[list(users)] = True
        known: dict[tuple[FlowClasses, frozenset[Lane]], FlowClasses] = {}
        self._met = []
        for flow_classes, own in zip(self.flow_classes, lanes, strict=True):
            if flow_classes and (flow_classes, own) not in known:
                near: list[int] = np.flatnonzero(self.common[list(flow_classes)].any(axis=0) & used).tolist()
                known[flow_classes, own] = tuple(flow_class for flow_class in near if not own & chains[flow_class])
            self._met.append(known[flow_classes, own] if flow_classes else ())

    def passes(self) -> frozenset[int]:
        """Return the passes whose own collectives can be contended."""
        are_passes = [isinstance(task.action, Compute) for task in self.graph.templates.tasks]
        used = {
            flow_class
            for flow_classes, is_pass in zip(self.flow_classes, are_passes, strict=True)
            if is_pass
            for flow_class in flow_classes
        }
        met = [[flow_class for flow_class in flow_classes if flow_class in used] for flow_classes in self._met]
        reached = [
            index
            for template, flow_classes in enumerate(self.flow_classes)
            if are_passes[template] and self._is_disturbed(flow_classes)
            for index in self.graph.templates.rows(template).tolist()
        ]
        if not any(met):
            return frozenset(reached)
        rivals = ((index, met[template]) for index, template in enumerate(self.graph.templates.of_task) if met[template])
        inline = {
            index: self.flow_classes[template]
            for index, template in enumerate(self.graph.templates.of_task)
            if are_passes[template] and self.flow_classes[template]
        }
        return contended_passes(self.graph, rivals, inline, job=self.job).union(reached)

    def all(self) -> frozenset[int]:
        """Return the passes that can be contended, and all transfers and overlapped collectives on links shared with others."""
        beside = (template for template, task in enumerate(self.graph.templates.tasks) if not isinstance(task.action, Compute))
        shared = [template for template in beside if self._met[template] or self._is_disturbed(self.flow_classes[template])]
        return self.passes().union(*(self.graph.templates.rows(template).tolist() for template in shared))

    def meetings(self, start_s: Sequence[float], end_s: Sequence[float]) -> frozenset[int]:
        """Return the tasks in progress at the same time as others that share their links.

        Parameters
        ----------
        start_s, end_s
            Of every task.
        """
        rows_of = self.graph.templates.rows
        sharing = [template for template, met in enumerate(self._met) if met]
        rows = np.concatenate([*map(rows_of, sharing), np.empty(0, dtype=np.int64)])
        starts, ends = np.zeros(len(start_s)), np.zeros(len(end_s))
        starts[rows], ends[rows] = ([times_s[row] for row in rows.tolist()] for times_s in (start_s, end_s))
        # Templates with the same rivals ask for the same moments.
        moments: dict[tuple[int, ...], Intervals] = {}
        found: set[int] = set()
        for template in sharing:
            rivals = self._rivals(template)
            if not rivals:
                continue
            if rivals not in moments:
                moments[rivals] = intervals_of(starts, ends, np.concatenate([rows_of(each) for each in rivals]))
            own = rows_of(template)
            hit = moments[rivals].meets(starts[own], ends[own])
            # Where much of a template meets others, times will shift, and more of it will.
            found.update((own if hit.sum() > MOST_ALONE * len(own) else own[hit]).tolist())
        return frozenset(found)

    def _is_disturbed(self, flow_classes: FlowClasses) -> bool:
        return bool(self.others and flow_classes) and bool(self.common[np.ix_(list(flow_classes), list(self.others))].any())

    def _rivals(self, template: int) -> tuple[int, ...]:
        """Return the templates that share a link with one, and no lane."""
        met, own, lanes = self._met[template], self._lanes[template], self._lanes
        rivals = self._known.get((met, own))
        if rivals is None:
            near = frozenset(met)
            templates = (
                each
                for each, flow_classes in enumerate(self.flow_classes)
                if not near.isdisjoint(flow_classes) and own.isdisjoint(lanes[each])
            )
            rivals = self._known[met, own] = tuple(templates)
        return rivals
