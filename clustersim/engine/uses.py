"""What the tasks of a program do, each thing once: the same action on the same lanes is looked at only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.program.program import Program
from clustersim.program.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Distinct pairs of an action and its lanes, of one chunk."""

    first: Sequence[int]
    """The first task of each."""
    tasks: Sequence[Task]
    """The same as tasks."""
    of_task: Sequence[int]
    """Which one each task is."""


def uses_of(program: Program) -> Uses:
    """Return what the tasks of a program do, in the order in which it is done first."""
    known: dict[tuple[int, object, int], int] = {}
    first: list[int] = []
    of_task: list[int] = []
    for index, task in enumerate(program.tasks):
        key = id(task.action), task.lanes, task.chunk
        use = known.get(key)
        if use is None:
            use = known[key] = len(first)
            first.append(index)
        of_task.append(use)
    return Uses(first=first, tasks=[program.tasks[index] for index in first], of_task=of_task)
