"""The chain of tasks that sets the step time, and the slack of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clustersim.engine.replay import Replay
from clustersim.engine.simulate import Machine, prepare
from clustersim.program.program import Program
from clustersim.trace.timeline import RankClass, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """Delay that tasks of one kind of one rank class may have without making the step longer, if all else takes as long as it did."""

    rank_class: int
    what: str
    """Phase of computation, or dimension of communication."""
    n_tasks: int
    least_s: float
    mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """One chain of tasks, each of which starts when the one before ends, from the start of the step to its end."""

    rank_classes: tuple[RankClass, ...]
    spans: tuple[Span, ...]
    """In order of time; of a task on several lanes, the first."""
    slack: tuple[Slack, ...]
    """Slack of all tasks, by rank class; tasks on the critical path have none."""
    step_time_s: float
    n_critical: int
    """Tasks without slack, of which there may be more than one chain has."""
    n_tasks: int

    def shares(self) -> dict[str, float]:
        """Return the seconds of the chain by what they are spent on; they sum to the step time, to round-off.

        Passes fall into computation by phase, ``recompute``, ``host``, ``waiting`` for ranks with more tokens, and exposed communication by
        dimension; what runs beside them is not on the chain.
        """
        seconds: dict[str, float] = {}
        for span in self.spans:
            for what, part_s in parts_of(span).items():
                seconds[what] = seconds.get(what, 0.0) + part_s
        return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))

    def classes(self) -> dict[str, float]:
        """Return the seconds of the chain by rank class, the longest first."""
        seconds: dict[str, float] = {}
        for span in self.spans:
            name = self.rank_classes[span.rank_class].name
            seconds[name] = seconds.get(name, 0.0) + span.end_s - span.start_s
        return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


def parts_of(span: Span) -> dict[str, float]:
    """Return the parts of a span, in seconds."""
    duration_s = span.end_s - span.start_s
    if span.kind == "communication":
        return {f"{span.dimension} communication": duration_s}
    named = {f"{dimension} communication": seconds for dimension, seconds in span.exposed_s}
    named |= {"waiting": span.waiting_s, "host": span.host_s, "recompute": span.recompute_s}
    named = {what: seconds for what, seconds in named.items() if seconds > 0.0}
    # Waiting for ranks with more tokens is part of what is exposed.
    left_s = duration_s - sum(seconds for what, seconds in named.items() if what != "waiting")
    if "waiting" in named:
        first = next(iter(named))
        named[first] -= named["waiting"]
    return {**named, span.kind: left_s} if left_s > 1e-9 * duration_s else named


def slack_of(spans: Sequence[Span], slack_s: Sequence[float]) -> tuple[Slack, ...]:
    """Return the slack of tasks, given as one span each, by rank class and kind."""
    found: dict[tuple[int, str], list[float]] = {}
    for span, seconds in zip(spans, slack_s, strict=True):
        what = f"{span.dimension} communication" if span.kind == "communication" else span.kind
        found.setdefault((span.rank_class, what), []).append(seconds)
    return tuple(
        Slack(rank_class=rank_class, what=what, n_tasks=len(each), least_s=min(each), mean_s=sum(each) / len(each))
        for (rank_class, what), each in sorted(found.items())
    )


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
    for index in sorted(range(len(tasks)), key=replay.prepared.graph.levels.__getitem__, reverse=True):
        start_s = latest_s[index] - (replay.ended_s[index] - replay.start_s[index])
        for earlier in tasks[index].after:
            latest_s[earlier] = min(latest_s[earlier], start_s)
    return [latest - ended for latest, ended in zip(latest_s, replay.ended_s, strict=True)]
