"""Templates of the tasks of a program: the same action on the same lanes is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.program.program import Program
from clustersim.program.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTemplates:
    """Distinct pairs of an action and its lanes, of one chunk."""

    tasks: Sequence[Task]
    """The first task of each."""
    of_task: Sequence[int]
    """Template of each task."""


def templates_of(program: Program) -> TaskTemplates:
    """Return the templates of a program, in the order of their first tasks."""
    known: dict[tuple[int, object, int], int] = {}
    first: list[Task] = []
    of_task: list[int] = []
    for task in program.tasks:
        key = id(task.action), task.lanes, task.chunk
        template = known.get(key)
        if template is None:
            template = known[key] = len(first)
            first.append(task)
        of_task.append(template)
    return TaskTemplates(tasks=first, of_task=of_task)
