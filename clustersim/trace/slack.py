"""Which chain of tasks sets the step time, and how much later everything else might end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
