"""Dependencies of a Program, by task and by rank class, and the program of two steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clustersim.program.program import Program
from clustersim.program.tasks import Action, Lane, Task
from clustersim.topology.cluster import IntArray
from clustersim.units.grouping import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTemplates:
    """Distinct pairs of an action and its lanes, of one chunk, in the order of their first tasks."""

    tasks: Sequence[Task]
    """The first task of each."""
    of_task: Sequence[int]
    """Template of each task."""
    order: IntArray
    """Tasks by template."""
    begins: Sequence[int]
    """First place in ``order`` of each template, and the number of tasks."""

    def rows(self, template: int) -> IntArray:
        """Return the tasks of a template, in order."""
        return self.order[self.begins[template] : self.begins[template + 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Dependencies of a task that occupies several rank classes."""

    own: tuple[tuple[int, tuple[int, ...]], ...]
    """(rank class, tasks of this class, and not of all, that precede), for each class that has any."""
    n_ranks: tuple[int, ...]
    """Ranks of each of them."""


@dataclass(frozen=True)
class Graph:
    """Dependencies of a program; each view of them is computed when it is first read."""

    program: Program

    @cached_property
    def templates(self) -> TaskTemplates:
        """Templates of the tasks."""
        known: dict[tuple[Action, tuple[Lane, ...], int], int] = {}
        of_task = [known.setdefault((task.action, task.lanes, task.chunk), len(known)) for task in self.program.tasks]
        templates = np.array(of_task, dtype=np.int64)
        order = np.argsort(templates, kind="stable")
        begins: list[int] = [0, *np.cumsum(np.bincount(templates)).tolist()]
        first: list[int] = order[begins[:-1]].tolist()
        return TaskTemplates(tasks=[self.program.tasks[index] for index in first], of_task=of_task, order=order, begins=begins)

    @cached_property
    def levels(self) -> Sequence[int]:
        """Length of the longest chain of tasks that precede each task; -1 where some of them wait for each other."""
        waiting = [len(task.after) for task in self.program.tasks]
        levels, ready = [-1] * len(waiting), [index for index, count in enumerate(waiting) if count == 0]
        level = 0
        while ready:
            reached: list[int] = []
            for index in ready:
                levels[index] = level
                for follower in self.followers[index]:
                    waiting[follower] -= 1
                    if waiting[follower] == 0:
                        reached.append(follower)
            ready, level = reached, level + 1
        return levels

    @cached_property
    def followers(self) -> Sequence[Sequence[int]]:
        """Tasks that wait for each task."""
        followers: list[list[int]] = [[] for _ in self.program.tasks]
        for index, task in enumerate(self.program.tasks):
            for earlier in task.after:
                followers[earlier].append(index)
        return followers

    @cached_property
    def classes(self) -> Sequence[tuple[int, ...]]:
        """Rank classes that each task occupies lanes of, each once."""
        return tuple(map(_classes, self.program.tasks))

    @cached_property
    def gates(self) -> Sequence[Sequence[int]]:
        """For each rank class, its tasks without a predecessor in the class: they wait until the class begins the step."""
        gates: list[list[int]] = [[] for _ in self.program.rank_classes]
        classes = self.classes
        for index, task in enumerate(self.program.tasks):
            preceding = set[int]().union(*[classes[earlier] for earlier in task.after])
            for rank_class in classes[index]:
                if rank_class not in preceding:
                    gates[rank_class].append(index)
        return gates

    @cached_property
    def n_waits(self) -> Sequence[int]:
        """Number of tasks and rank classes that each task waits for."""
        n_waits = [len(task.after) for task in self.program.tasks]
        for gates in self.gates:
            for index in gates:
                n_waits[index] += 1
        return n_waits

    @cached_property
    def n_tasks(self) -> Sequence[int]:
        """Number of tasks of each rank class."""
        n_tasks = [0] * len(self.program.rank_classes)
        for classes in self.classes:
            for rank_class in classes:
                n_tasks[rank_class] += 1
        return n_tasks

    @cached_property
    def joints(self) -> dict[int, Joint]:
        """Tasks that follow tasks of at least two of their classes."""
        wide = ((index, self._joint(index)) for index, classes in enumerate(self.classes) if len(classes) > 1)
        return {index: joint for index, joint in wide if len(joint.own) > 1}

    @cached_property
    def components(self) -> Sequence[tuple[int, ...]]:
        """Rank classes connected by tasks, each with all that it may wait for, directly or through others."""
        leader = list(range(len(self.program.rank_classes)))
        for index, task in enumerate(self.program.tasks):
            connected = {leader[each] for place in (index, *task.after) for each in self.classes[place]}
            if len(connected) > 1:
                first = min(connected)
                leader = [first if each in connected else each for each in leader]
        found = grouped((leader[each], each) for each in sorted(set[int]().union(*self.classes)))
        return tuple(map(tuple, found.values()))

    def _joint(self, index: int) -> Joint:
        program, here = self.program, self.classes[index]
        # A task of all of them keeps none of them waiting for another.
        before = [earlier for earlier in program.tasks[index].after if not set(here).issubset(self.classes[earlier])]
        found = ((each, tuple(earlier for earlier in before if each in self.classes[earlier])) for each in here)
        own = tuple((each, earlier) for each, earlier in found if earlier)
        return Joint(own=own, n_ranks=tuple(program.rank_classes[each].n_ranks for each, _ in own))


def _classes(task: Task) -> tuple[int, ...]:
    if len(task.lanes) == 1:
        return (task.lanes[0].rank_class,)
    return tuple(dict.fromkeys(lane.rank_class for lane in task.lanes))


def unrolled(graph: Graph) -> Program:
    """Return a program of two steps: the given one, and the next, which each rank class begins when its own tasks of the first have ended.

    Two steps hold all that can be in progress at once, however far classes drift apart: a task waits for nothing that belongs to a later
    step, so that if it can run beside a task several steps ahead, it can run beside the same task in the next step.
    """
    program, n_tasks = graph.program, len(graph.program.tasks)
    lasts: list[list[int]] = [[] for _ in program.rank_classes]
    for index, classes in enumerate(graph.classes):
        for each in classes:
            if not any(each in graph.classes[follower] for follower in graph.followers[index]):
                lasts[each].append(index)
    before: list[list[int]] = [[] for _ in program.tasks]
    for each, gates in enumerate(graph.gates):
        for index in gates:
            before[index] += lasts[each]
    second = tuple(
        task._replace(after=tuple(dict.fromkeys((*(n_tasks + earlier for earlier in task.after), *before[index]))))
        for index, task in enumerate(program.tasks)
    )
    return replace(program, tasks=program.tasks + second)
