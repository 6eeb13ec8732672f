"""The passes whose inline collectives can be contended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.errors import DeadlockError
from clustersim.program.program import Program
from clustersim.program.tasks import COMPUTE_STREAM, Compute

Positions = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """For every task, what precedes and what follows it on the compute lane of every rank class.

    A task and a pass of class c at place q of its lane can run at the same time only if
    ``before[task, c] < q < behind[task, c]``.
    """

    before: Positions
    """Shape (n_tasks, n_classes): place of the last compute task that must have ended; -1 without any."""
    behind: Positions
    """Place of the first compute task that must wait; the number of tasks without any."""
    place: Places
    """Shape (n_tasks,): place of a compute task on its lane; -1 for others."""


def order_of(program: Program, job: str = "") -> Order:
    """Return the precedence of tasks from the dependencies alone.

    A pass with several lanes stands on each of them, and is found by its place on the first.

    Raises
    ------
    DeadlockError
        When tasks wait for each other.
    """
    tasks, n_classes = program.tasks, len(program.rank_classes)
    n_tasks = len(tasks)
    places = _places(program)
    own_before, own_behind = np.full((n_tasks, n_classes), -1, dtype=np.int32), np.full((n_tasks, n_classes), n_tasks, dtype=np.int32)
    for index, rank_class, place in places:
        own_before[index, rank_class] = own_behind[index, rank_class] = place
    waits = np.fromiter((len(task.after) for task in tasks), dtype=np.int64, count=n_tasks)
    earlier = np.fromiter((each for task in tasks for each in task.after), dtype=np.int64, count=int(waits.sum()))
    later, level = np.repeat(np.arange(n_tasks), waits), _levels(program, job)
    before, behind = np.full_like(own_before, -1), np.full_like(own_behind, n_tasks)
    for froms, tos in _by_level(earlier, later, level[later]):
        _reduce(np.maximum, before, tos, np.maximum(before[froms], own_before[froms]))
    for froms, tos in _by_level(later, earlier, -level[earlier]):
        _reduce(np.minimum, behind, tos, np.minimum(behind[froms], own_behind[froms]))
    place = np.full(n_tasks, -1, dtype=np.int64)
    for index, _, each in reversed(places):
        place[index] = each
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
    program: Program, rivals: Iterable[tuple[int, Sequence[int]]], inline: Mapping[int, Sequence[int]], *, order: Order | None = None
) -> frozenset[int]:
    """Return the passes that can run at the same time as traffic on their own links.

    Parameters
    ----------
    rivals
        Transfers, collectives beside passes, and passes themselves: index of the task, and the flow classes inside
        passes that it shares a link with.
    inline
        For each compute task with inline collectives, their flow classes.
    order
        Of the program, where it is known.
    """
    meeting = [(task, flow_classes) for task, flow_classes in rivals if flow_classes]
    if not meeting or not inline:
        return frozenset()
    order = order or order_of(program)
    indices = sorted(inline)
    classes = np.array([program.tasks[index].lanes[0].rank_class for index in indices], dtype=np.int64)
    places = order.place[indices]
    met = np.zeros(len(indices), dtype=np.bool_)
    by_class: dict[int, list[int]] = {}
    for task, flow_classes in meeting:
        for flow_class in flow_classes:
            by_class.setdefault(flow_class, []).append(task)
    for flow_class, tasks in by_class.items():
        uses = np.array([flow_class in inline[index] for index in indices])
        # A pass that is a rival itself is counted at its own place.
        itself = np.isin(indices, tasks)
        met |= uses & (_rivals_at(order, tasks)[classes, places] > itself)
    return frozenset(index for index, is_met in zip(indices, met.tolist(), strict=True) if is_met)


def _rivals_at(order: Order, tasks: Sequence[int]) -> Places:
    """Return how many of the tasks can run beside the pass at each place of each class's compute lane.

    Every task is beside one stretch of each lane, so that the ends of the stretches are counted and summed up.
    """
    rivals = np.array(tasks, dtype=np.int64)
    n_classes, n_places = order.before.shape[1], int(order.place.max(initial=0)) + 2
    first = order.before[rivals] + 1
    stop = np.maximum(np.minimum(order.behind[rivals], n_places - 1), first)
    change = np.zeros((n_classes, n_places), dtype=np.int64)
    for lane in range(n_classes):
        change[lane] += np.bincount(first[:, lane], minlength=n_places) - np.bincount(stop[:, lane], minlength=n_places)
    return np.cumsum(change, axis=1)


def _levels(program: Program, job: str) -> Places:
    """Return for each task the length of the longest chain of tasks that precede it."""
    waiting = [len(task.after) for task in program.tasks]
    followers: list[list[int]] = [[] for _ in program.tasks]
    for index, task in enumerate(program.tasks):
        for earlier in task.after:
            followers[earlier].append(index)
    level, ready, n_seen = [0] * len(waiting), [index for index, count in enumerate(waiting) if count == 0], 0
    while ready:
        n_seen += len(ready)
        reached: list[int] = []
        for index in ready:
            above = level[index] + 1
            for follower in followers[index]:
                level[follower] = max(level[follower], above)
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    reached.append(follower)
        ready = reached
    if n_seen < len(waiting):
        raise DeadlockError(deadlock_message(program, [count == 0 for count in waiting], job))
    return np.array(level, dtype=np.int64)


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
