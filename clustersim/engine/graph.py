"""A Program seen from its rank classes: what begins a step, what joins several of them, and how a step follows another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clustersim.program.program import Program
from clustersim.program.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """What a task waits for that takes several rank classes."""

    own: tuple[tuple[int, tuple[int, ...]], ...]
    """(rank class, tasks of this class, and not of all, that precede), for each class that has any."""
    n_ranks: tuple[int, ...]
    """Ranks of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The dependencies of a program the other way round, and by rank class."""

    followers: tuple[tuple[int, ...], ...]
    """Tasks that wait for each."""
    classes: tuple[tuple[int, ...], ...]
    """Rank classes that each task occupies lanes of, each once."""
    gates: tuple[tuple[int, ...], ...]
    """For each rank class, the tasks that nothing of the class precedes: they wait until the class begins the step."""
    n_waits: tuple[int, ...]
    """For each task, how many tasks and rank classes it waits for."""
    n_tasks: tuple[int, ...]
    """Of each rank class."""
    joints: dict[int, Joint]
    """Tasks for which at least two classes have something to do before."""
    components: tuple[tuple[int, ...], ...]
    """Rank classes with tasks that tasks connect, each with all that it may have to wait for, directly or through others."""


def graph_of(program: Program) -> Graph:
    """Return a program's dependencies by rank class."""
    tasks, n_classes = program.tasks, len(program.rank_classes)
    classes = tuple(map(_classes, tasks))
    followers: list[list[int]] = [[] for _ in tasks]
    gates: list[list[int]] = [[] for _ in range(n_classes)]
    n_waits, n_tasks = [len(task.after) for task in tasks], [0] * n_classes
    joints: dict[int, Joint] = {}
    for index, task in enumerate(tasks):
        for earlier in task.after:
            followers[earlier].append(index)
        preceding = set[int]().union(*[classes[earlier] for earlier in task.after])
        for rank_class in classes[index]:
            n_tasks[rank_class] += 1
            if rank_class not in preceding:
                gates[rank_class].append(index)
                n_waits[index] += 1
        if len(classes[index]) > 1:
            joint = _joint(program, index, classes)
            if len(joint.own) > 1:
                joints[index] = joint
    return Graph(
        followers=tuple(map(tuple, followers)),
        classes=classes,
        gates=tuple(map(tuple, gates)),
        n_waits=tuple(n_waits),
        n_tasks=tuple(n_tasks),
        joints=joints,
        components=_components(tasks, classes, n_classes),
    )


def _classes(task: Task) -> tuple[int, ...]:
    if len(task.lanes) == 1:
        return (task.lanes[0].rank_class,)
    return tuple(dict.fromkeys(lane.rank_class for lane in task.lanes))


def _components(tasks: Sequence[Task], classes: Sequence[tuple[int, ...]], n_classes: int) -> tuple[tuple[int, ...], ...]:
    leader = list(range(n_classes))
    for index, task in enumerate(tasks):
        connected = {leader[each] for place in (index, *task.after) for each in classes[place]}
        if len(connected) > 1:
            first = min(connected)
            leader = [first if each in connected else each for each in leader]
    taking_part = sorted(set[int]().union(*classes))
    found: dict[int, list[int]] = {}
    for each in taking_part:
        found.setdefault(leader[each], []).append(each)
    return tuple(map(tuple, found.values()))


def _joint(program: Program, index: int, classes: Sequence[tuple[int, ...]]) -> Joint:
    here = classes[index]
    # What all of them come from keeps nobody waiting.
    before = [earlier for earlier in program.tasks[index].after if not set(here).issubset(classes[earlier])]
    found = ((each, tuple(earlier for earlier in before if each in classes[earlier])) for each in here)
    own = tuple((each, earlier) for each, earlier in found if earlier)
    return Joint(own=own, n_ranks=tuple(program.rank_classes[each].n_ranks for each, _ in own))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolled:
    """A program whose order holds for tasks of any two steps."""

    program: Program
    originals: Sequence[int]
    """For each task, which one of the program it stands for."""


def unrolled(program: Program) -> Unrolled:
    """Return a program and its next step, in which each class begins as soon as it has ended the first.

    Two steps hold all that can be in progress at once, however far classes drift apart: a task waits for nothing that belongs to a later
    step, so that if it can run beside a task several steps ahead, it can run beside the same task in the next step.
    """
    graph, n_tasks = graph_of(program), len(program.tasks)
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
        replace(task, after=tuple(dict.fromkeys((*(n_tasks + earlier for earlier in task.after), *before[index]))))
        for index, task in enumerate(program.tasks)
    )
    return Unrolled(program=replace(program, tasks=program.tasks + second), originals=(*range(n_tasks), *range(n_tasks)))
