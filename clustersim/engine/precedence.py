"""The passes whose inline collectives can be contended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.engine.program_graph import Graph
from clustersim.errors import DeadlockError
from clustersim.program.program import Program
from clustersim.program.tasks import COMPUTE_STREAM, Compute

Positions = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """For every task, what precedes and what follows it on the compute lane of some rank classes.

    A task and a pass of class c at place q of its lane can run at the same time only if
    ``before[task, c] < q < behind[task, c]``.
    """

    before: Positions
    """Shape (n_tasks, n_classes): place of the last compute task that must have ended; -1 without any."""
    behind: Positions
    """Place of the first compute task that must wait; the number of tasks without any."""
    place: Places
    """Shape (n_tasks,): place of a compute task on its lane; -1 for others."""


LANES: Final = 64
"""Rank classes whose lanes are looked at together, which bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Precedence:
    """Dependencies of the tasks of a program, and the tasks on compute lanes."""

    n_tasks: int
    n_classes: int
    on_lanes: Places
    """Shape (n, 3): task, rank class, and place on its compute lane; for every lane of every pass."""
    forwards: Sequence[tuple[Places, Places]]
    """Earlier and later tasks, together those that lead to tasks of one level."""
    backwards: Sequence[tuple[Places, Places]]
    """Later and earlier tasks, the other way round."""

    @classmethod
    def of(cls, graph: Graph, job: str = "") -> Precedence:
        """Return the dependencies of a program.

        Raises
        ------
        DeadlockError
            When tasks wait for each other.
        """
        program, tasks = graph.program, graph.program.tasks
        waits = np.fromiter((len(task.after) for task in tasks), dtype=np.int64, count=len(tasks))
        earlier = np.fromiter((each for task in tasks for each in task.after), dtype=np.int64, count=int(waits.sum()))
        later, level = np.repeat(np.arange(len(tasks)), waits), np.array(graph.levels, dtype=np.int64)
        if (level < 0).any():
            raise DeadlockError(deadlock_message(program, (level >= 0).tolist(), job))
        return cls(
            n_tasks=len(tasks),
            n_classes=len(program.rank_classes),
            on_lanes=np.array(_places(program), dtype=np.int64).reshape(-1, 3),
            forwards=tuple(_by_level(earlier, later, level[later])),
            backwards=tuple(_by_level(later, earlier, -level[earlier])),
        )

    def order(self, classes: Places | None = None) -> Order:
        """Return the precedence of tasks on the lanes of some rank classes, by default of all.

        A pass with several lanes stands on each of them, and is found by its place on the first.
        """
        classes = np.arange(self.n_classes) if classes is None else classes
        columns = np.full(self.n_classes, -1)
        columns[classes] = np.arange(len(classes))
        indices, of_class, places = self.on_lanes.T
        here = columns[of_class] >= 0
        own_before = np.full((self.n_tasks, len(classes)), -1, dtype=np.int32)
        own_behind = np.full_like(own_before, self.n_tasks)
        own_before[indices[here], columns[of_class[here]]] = own_behind[indices[here], columns[of_class[here]]] = places[here]
        before, behind = np.full_like(own_before, -1), np.full_like(own_behind, self.n_tasks)
        for froms, tos in self.forwards:
            _reduce(np.maximum, before, tos, np.maximum(before[froms], own_before[froms]))
        for froms, tos in self.backwards:
            _reduce(np.minimum, behind, tos, np.minimum(behind[froms], own_behind[froms]))
        place = np.full(self.n_tasks, -1, dtype=np.int64)
        place[indices[::-1]] = places[::-1]
        return Order(before=before, behind=behind, place=place)


def _places(program: Program) -> list[tuple[int, int, int]]:
    """Return task, class and place on the compute lane of the class, for every lane of every pass."""
    counts, found = [0] * len(program.rank_classes), list[tuple[int, int, int]]()
    for index, task in enumerate(program.tasks):
        for rank_class, stream in task.lanes:
            if stream == COMPUTE_STREAM:
                found.append((index, rank_class, counts[rank_class]))
                counts[rank_class] += 1
    return found


def _by_level(froms: Places, tos: Places, key: Places) -> Iterator[tuple[Places, Places]]:
    """Yield the dependencies, together those that lead to tasks of one level, sorted by where they lead to."""
    order = np.lexsort((tos, key))
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    for rows in np.split(order, cuts) if len(order) else ():
        yield froms[rows], tos[rows]


def _reduce(function: np.ufunc, into: Positions, tos: Places, values: Positions) -> None:
    """Reduce the rows of values that lead to the same task, which stand together."""
    starts = np.flatnonzero(np.concatenate(([True], tos[1:] != tos[:-1])))
    into[tos[starts]] = function.reduceat(values, starts, axis=0)


def contended_passes(
    graph: Graph, rivals: Iterable[tuple[int, Sequence[int]]], inline: Mapping[int, Sequence[int]], *, job: str = ""
) -> frozenset[int]:
    """Return the passes that can run at the same time as traffic on their own links.

    Parameters
    ----------
    rivals
        Transfers, collectives beside passes, and passes themselves: index of the task, and the flow classes inside
        passes that it shares a link with.
    inline
        For each compute task with inline collectives, their flow classes.
    job
        Name of the job, for an error.

    Raises
    ------
    DeadlockError
        When tasks wait for each other.
    """
    tasks_of, users_of = dict[int, list[int]](), dict[int, list[int]]()
    for task, flow_classes in rivals:
        for flow_class in flow_classes:
            tasks_of.setdefault(flow_class, []).append(task)
    for index, flow_classes in inline.items():
        for flow_class in tasks_of.keys() & set(flow_classes):
            users_of.setdefault(flow_class, []).append(index)
    if not users_of:
        return frozenset()
    uses = [(np.array(tasks_of[flow_class]), np.array(users)) for flow_class, users in users_of.items()]
    program, precedence = graph.program, Precedence.of(graph, job)
    class_of = np.array([task.lanes[0].rank_class for task in program.tasks])
    wanted = np.unique(np.concatenate([class_of[users] for _, users in uses]))
    is_rival, met = np.zeros(len(program.tasks), dtype=np.bool_), np.zeros(len(program.tasks), dtype=np.bool_)
    for classes in np.split(wanted, range(LANES, len(wanted), LANES)):
        order = precedence.order(classes)
        column_of = np.full(len(program.rank_classes), -1)
        column_of[classes] = np.arange(len(classes))
        for tasks, users in uses:
            here = users[column_of[class_of[users]] >= 0]
            if len(here):
                columns, lanes = np.unique(column_of[class_of[here]], return_inverse=True)
                # A pass that is a rival itself is counted at its own place.
                is_rival[tasks] = True
                met[here] |= _rivals_at(order, tasks, columns)[lanes, order.place[here]] > is_rival[here]
                is_rival[tasks] = False
    return frozenset(np.flatnonzero(met).tolist())


def _rivals_at(order: Order, tasks: Places, columns: Places) -> Places:
    """Return how many of the tasks can run beside the pass at each place of some compute lanes.

    Every task is beside one stretch of each lane, so that the ends of the stretches are counted and summed up.
    """
    n_places = int(order.place.max(initial=0)) + 2
    first = order.before[np.ix_(tasks, columns)] + 1
    stop = np.maximum(np.minimum(order.behind[np.ix_(tasks, columns)], n_places - 1), first)
    lanes, size = n_places * np.arange(len(columns)), n_places * len(columns)
    change = np.bincount((first + lanes).reshape(-1), minlength=size) - np.bincount((stop + lanes).reshape(-1), minlength=size)
    return np.cumsum(change.reshape(len(columns), n_places), axis=1)


N_NAMED = 6
"""Waiting tasks that a deadlock message names."""


def deadlock_message(program: Program, ended: Sequence[bool], job: str = "") -> str:
    """Return who waits for what, for the first few of the tasks of a job that have not ended."""
    stuck = [index for index, done in enumerate(ended) if not done]
    lines: list[str] = []
    for index in stuck[:N_NAMED]:
        earlier = [task_name(program, other) for other in program.tasks[index].after if not ended[other]]
        lines.append(f"{task_name(program, index)} waits for {', '.join(earlier) or 'its ranks to begin the step'}")
    more = f"\n  and {len(stuck) - N_NAMED} more" if len(stuck) > N_NAMED else ""
    of_job = f" of job '{job}'" if job else ""
    head = (
        f"{len(stuck)} of {len(program.tasks)} tasks{of_job} wait for each other for ever, the first on rank {rank_of(program, stuck[0])}"
    )
    return f"{head}:\n  " + "\n  ".join(lines) + more


def rank_of(program: Program, index: int) -> int:
    """Return a rank that does a task."""
    return program.rank_classes[program.tasks[index].lanes[0].rank_class].representative_rank


def task_name(program: Program, index: int) -> str:
    """Return a task's name for people: action, micro-batch, rank class and stream."""
    task = program.tasks[index]
    where = program.rank_classes[task.lanes[0].rank_class].name
    label = f" of micro-batch {task.micro_batch}" if task.micro_batch >= 0 else ""
    stream = "" if isinstance(task.action, Compute) else f" ({task.lanes[0].stream})"
    return f"{task.action.name}{label} on {where}{stream}"
