"""Follow the chain of tasks that sets the step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clustersim.engine.replay import Replay
from clustersim.engine.simulate import Machine, prepare
from clustersim.program.program import Program
from clustersim.trace.slack import CriticalPath, slack_of
from clustersim.trace.timeline import Span


def critical_path(program: Program, machine: Machine) -> CriticalPath:
    """Return the chain of tasks that sets the time of one step, and the slack of all.

    A task starts when the last of those it waits for ends. From the task that ends last, the chain goes back to the one that it waited
    for longest, and so on to the start. Forward in time the latest end of a task is the least latest start of those that wait for it, and
    of the last ones the end of the step; slack is the latest end less the end (the critical path method).

    References
    ----------
    .. [1] J. E. Kelley, M. R. Walker, "Critical-Path Planning and Scheduling", *Proc. Eastern Joint Computer Conference*, 1959.

    Raises
    ------
    DeadlockError
        When the program waits for itself.
    """
    replay = prepare(program, machine, (), others=()).replayed().first
    step_s, slack_s = replay.end_s(), slacks(replay)
    shown = replay.shown()
    return CriticalPath(
        rank_classes=replay.program.rank_classes,
        spans=tuple(_at(replay, index, shown[index]) for index in chain(replay)),
        slack=slack_of(shown, slack_s),
        step_time_s=step_s,
        n_critical=sum(seconds == 0.0 for seconds in slack_s),
        n_tasks=len(slack_s),
    )


def _at(replay: Replay, index: int, shown: Span) -> Span:
    micro_batch = replay.program.tasks[index].micro_batch
    return replace(shown, start_s=replay.start_s[index], end_s=replay.ended_s[index], micro_batch=micro_batch)


def chain(replay: Replay) -> list[int]:
    """Return the tasks of the chain that sets the step time, in order; of equals the first."""
    tasks, ended_s = replay.program.tasks, replay.ended_s
    if not tasks:
        return []
    index = max(range(len(tasks)), key=lambda each: (ended_s[each], -each))
    found = [index]
    while tasks[index].after:
        index = max(tasks[index].after, key=lambda each: (ended_s[each], -each))
        found.append(index)
    return found[::-1]


def slacks(replay: Replay) -> list[float]:
    """Return for each task how much later it might end."""
    tasks, step_s = replay.program.tasks, replay.end_s()
    latest_s = [step_s] * len(tasks)
    for index in _backwards(replay):
        start_s = latest_s[index] - (replay.ended_s[index] - replay.start_s[index])
        for earlier in tasks[index].after:
            latest_s[earlier] = min(latest_s[earlier], start_s)
    return [latest - ended for latest, ended in zip(latest_s, replay.ended_s, strict=True)]


def _backwards(replay: Replay) -> Sequence[int]:
    """Return all tasks, each after those that wait for it."""
    waiting = [len(followers) for followers in replay.prepared.graph.followers]
    ready = [index for index, count in enumerate(waiting) if not count]
    for index in ready:
        for earlier in replay.program.tasks[index].after:
            waiting[earlier] -= 1
            if not waiting[earlier]:
                ready.append(earlier)
    return ready
