"""Idle time of rank classes, charged to the class that they waited for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum

import numpy as np

from clustersim.engine.program_graph import Graph
from clustersim.program.program import Program
from clustersim.program.tasks import COMPUTE_STREAM, Compute, Task, Transfer
from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Mean time that ranks waited for those of one class, in seconds."""

    rank_class: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrival:
    """Several classes at a task that joins them, of which one came last."""

    last: int
    waits_s: Sequence[float]
    """Wait of each class that had something to do before, in seconds."""
    n_ranks: Sequence[int]
    """Ranks of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Own:
    """Tasks of one rank class."""

    tasks: IntArray
    """All but those of the loader."""
    passes: IntArray
    """Those on its compute stream."""
    loads: IntArray
    """Those of the loader."""


@dataclass(slots=True, kw_only=True)
class Waiting:
    """Charges for waiting, computed from the times of all tasks of a step.

    A task of several classes starts when all have ended what they have to do for it. Until then those that came earlier wait, as far as
    they have nothing else in progress; reading the next batch is nothing else. What is counted is the mean over all ranks, and it is
    charged to the class that came last. After the last step, where all must end, those that are through wait for the last.

    The stages of a pipeline wait for each other at every transfer, and who comes last there is often only handing on what came late to
    itself; with equal stages they wait too, for nobody. What sets the pace of a pipeline is the class whose passes take longest, and it
    is charged with what they take more than those of the others, on average over all classes that it is connected with.

    Where the loader is through after all else that connected classes do in a step, they wait for it, and nobody is charged.
    """

    program: Program
    graph: Graph
    last_step: int | None = None
    """Step at whose end all classes wait for the last; None where they do not wait for each other."""
    _is_pipeline: bool = field(init=False)
    _own: list[_Own] = field(init=False)
    _taking_part: tuple[int, ...] = field(init=False)
    """Rank classes that have anything to do."""

    def __post_init__(self) -> None:
        """Sort the tasks by rank class."""
        tasks = self.program.tasks
        self._is_pipeline = any(_is_between_stages(self.program, task) for task in tasks)
        self._taking_part = tuple(rank_class for rank_class, count in enumerate(self.graph.n_tasks) if count)
        kinds: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in self.program.rank_classes]
        for index, task in enumerate(tasks):
            for rank_class in self.graph.classes[index]:
                own, passes, loads = kinds[rank_class]
                if isinstance(task.action, Compute) and task.action.phase == "load":
                    loads.append(index)
                    continue
                own.append(index)
                if task.lanes[0].stream == COMPUTE_STREAM:
                    passes.append(index)
        self._own = [_Own(tasks=_rows(own), passes=_rows(passes), loads=_rows(loads)) for own, passes, loads in kinds]

    def charges(self, step: int, start_s: FloatArray, end_s: FloatArray) -> list[Charge]:
        """Return the charges of a step that has ended, from start and end of each of its tasks in seconds."""
        busy_s = [float((end_s - start_s)[own.passes].sum()) for own in self._own]
        ended_s = [float(end_s[own.tasks].max(initial=0.0)) for own in self._own]
        loaded_s = [float(end_s[own.loads].max(initial=0.0)) for own in self._own]
        if self._is_pipeline:
            arrivals = [self._longest(busy_s, component) for component in self.graph.components]
        else:
            arrivals = list(self._arrivals(start_s, end_s))
            if step == self.last_step:
                arrivals.append(self._longest(ended_s, self._taking_part))
        kept = frozenset[int]().union(
            *[
                component
                for component in self.graph.components
                if max(loaded_s[each] for each in component) - max(ended_s[each] for each in component) > 0.0
            ]
        )
        found = [Charge(rank_class=each.last, seconds=self._mean_s(each)) for each in arrivals if each.last not in kept]
        return [charge for charge in found if charge.seconds > 0.0]

    def _arrivals(self, start_s: FloatArray, end_s: FloatArray) -> Iterator[_Arrival]:
        """Yield who came last at each task that joins several classes, in the order of their starts."""
        joints = self.graph.joints
        if not joints:
            return
        order = [own.tasks[np.argsort(start_s[own.tasks], kind="stable")] for own in self._own]
        starts_s = [start_s[tasks] for tasks in order]
        # The end of all that has started before: later than a moment while the class is busy, else the moment since which it is idle.
        busy_until_s = [np.maximum.accumulate(end_s[tasks]) for tasks in order]
        charged_s = [0.0] * len(order)

        def wait_s(rank_class: int, moment_s: float) -> float:
            """Return the time since the class was busy, or waited at another joint that started at the same moment."""
            n_begun = int(np.searchsorted(starts_s[rank_class], moment_s))
            since_s = max(charged_s[rank_class], float(busy_until_s[rank_class][n_begun - 1])) if n_begun else moment_s
            charged_s[rank_class] = moment_s
            return max(0.0, moment_s - since_s)

        for index in sorted(joints, key=lambda each: (start_s[each], each)):
            own, moment_s = joints[index].own, float(start_s[index])
            arrivals_s = [float(end_s[list(before)].max()) for _, before in own]
            last = own[_first_of_longest(arrivals_s)][0]
            yield _Arrival(last=last, waits_s=[wait_s(each, moment_s) for each, _ in own], n_ranks=joints[index].n_ranks)

    def _mean_s(self, arrival: _Arrival) -> float:
        waited_s = fsum(count * wait_s for count, wait_s in zip(arrival.n_ranks, arrival.waits_s, strict=True))
        ranks = arrival.n_ranks if self._is_pipeline else [self.program.rank_classes[each].n_ranks for each in self._taking_part]
        return waited_s / sum(ranks)

    def _longest(self, seconds: Sequence[float], classes: Sequence[int]) -> _Arrival:
        """Return the first class of those with the longest time as the last, for which the others wait as much as theirs are shorter."""
        last = classes[_first_of_longest([seconds[each] for each in classes])]
        n_ranks = [self.program.rank_classes[each].n_ranks for each in classes]
        return _Arrival(last=last, waits_s=[seconds[last] - seconds[each] for each in classes], n_ranks=n_ranks)


def _rows(tasks: Sequence[int]) -> IntArray:
    return np.array(tasks, dtype=np.int64)


def _first_of_longest(seconds: Sequence[float]) -> int:
    return max(range(len(seconds)), key=seconds.__getitem__)


def _is_between_stages(program: Program, task: Task) -> bool:
    return isinstance(task.action, Transfer) and len({program.rank_classes[lane.rank_class].stage for lane in task.lanes}) > 1
