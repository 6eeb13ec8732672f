"""Which passes can meet other traffic on the links of their inline collectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.errors import DeadlockError
from clustersim.program.program import Program
from clustersim.program.tasks import COMPUTE_STREAM, Compute

Positions = NDArray[np.int64]


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
    place: Positions
    """Shape (n_tasks,): place of a compute task on its lane; -1 for others."""


def order_of(program: Program) -> Order:
    """Return who must precede whom, from the dependencies alone."""
    tasks, n_classes = program.tasks, len(program.rank_classes)
    place = np.full(len(tasks), -1, dtype=np.int64)
    counts = [0] * n_classes
    for index, task in enumerate(tasks):
        if task.lanes[0].stream == COMPUTE_STREAM:
            place[index] = counts[task.lanes[0].rank_class]
            counts[task.lanes[0].rank_class] += 1
    sequence = _topological(program)
    before = np.full((len(tasks), n_classes), -1, dtype=np.int64)
    behind = np.full((len(tasks), n_classes), len(tasks), dtype=np.int64)
    for index in sequence:
        for earlier in tasks[index].after:
            np.maximum(before[index], before[earlier], out=before[index])
            if place[earlier] >= 0:
                rank_class = tasks[earlier].lanes[0].rank_class
                before[index, rank_class] = max(before[index, rank_class], place[earlier])
    for index in reversed(sequence):
        for earlier in tasks[index].after:
            np.minimum(behind[earlier], behind[index], out=behind[earlier])
            if place[index] >= 0:
                rank_class = tasks[index].lanes[0].rank_class
                behind[earlier, rank_class] = min(behind[earlier, rank_class], place[index])
    return Order(before=before, behind=behind, place=place)


def contended_passes(program: Program, rivals: Iterable[tuple[int, Sequence[int]]], inline: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return the passes that can run at the same time as traffic on their own links.

    Parameters
    ----------
    rivals
        Transfers, collectives beside passes, and passes themselves: index of the task, and the inline kinds that it shares a link with.
    inline
        For each compute task with inline collectives, their kinds.
    """
    meeting = [(task, kinds) for task, kinds in rivals if kinds]
    if not meeting or not inline:
        return frozenset()
    order = order_of(program)
    indices = sorted(inline)
    classes = np.array([program.tasks[index].lanes[0].rank_class for index in indices], dtype=np.int64)
    places = order.place[indices]
    met = np.zeros(len(indices), dtype=np.bool_)
    by_kind: dict[int, list[int]] = {}
    for task, kinds in meeting:
        for kind in kinds:
            by_kind.setdefault(kind, []).append(task)
    for kind, tasks in by_kind.items():
        uses = np.array([kind in inline[index] for index in indices])
        # A pass that is a rival itself is counted at its own place.
        itself = np.isin(indices, tasks)
        met |= uses & (_rivals_at(order, tasks)[classes, places] > itself)
    return frozenset(index for index, is_met in zip(indices, met.tolist(), strict=True) if is_met)


def _rivals_at(order: Order, tasks: Sequence[int]) -> Positions:
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


def _topological(program: Program) -> list[int]:
    waiting = [len(task.after) for task in program.tasks]
    followers: list[list[int]] = [[] for _ in program.tasks]
    for index, task in enumerate(program.tasks):
        for earlier in task.after:
            followers[earlier].append(index)
    ready = deque(index for index, count in enumerate(waiting) if count == 0)
    sequence: list[int] = []
    while ready:
        index = ready.popleft()
        sequence.append(index)
        for follower in followers[index]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if len(sequence) < len(program.tasks):
        raise DeadlockError(deadlock_message(program, [count == 0 for count in waiting]))
    return sequence


N_NAMED = 6
"""Waiting tasks that a deadlock message names."""


def deadlock_message(program: Program, ended: Sequence[bool]) -> str:
    """Return who waits for what, for the first few of the tasks that have not ended."""
    stuck = [index for index, done in enumerate(ended) if not done]
    lines: list[str] = []
    for index in stuck[:N_NAMED]:
        earlier = [task_name(program, other) for other in program.tasks[index].after if not ended[other]]
        lines.append(f"{task_name(program, index)} waits for {', '.join(earlier) or 'its ranks to begin the step'}")
    more = f"\n  and {len(stuck) - N_NAMED} more" if len(stuck) > N_NAMED else ""
    return f"{len(stuck)} of {len(program.tasks)} tasks wait for each other for ever:\n  " + "\n  ".join(lines) + more


def task_name(program: Program, index: int) -> str:
    """Return a task's name for people: action, micro-batch, rank class and stream."""
    task = program.tasks[index]
    where = program.rank_classes[task.lanes[0].rank_class].name
    label = f" of micro-batch {task.micro_batch}" if task.micro_batch >= 0 else ""
    stream = "" if isinstance(task.action, Compute) else f" ({task.lanes[0].stream})"
    return f"{task.action.name}{label} on {where}{stream}"
