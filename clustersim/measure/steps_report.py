"""Several steps in numbers: how long they took, who was waited for, and how old the gradients were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, inf

from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import PASS_KINDS, RankClass, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """A class of ranks for which others waited."""

    name: str
    """Such as ``rank 3``."""
    ranks: int
    slow: str
    """The ranks of the class that set the pace of the others; empty where all are equal."""
    waited_s: float
    """In one step: from the mean arrival of all at what they do together, to the arrival of this class, which was the last. In a pipeline:
    what its passes take more than those of the others, on average."""
    steps_fraction: float
    """Share of the steps in which no rank had a longer wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSteps:
    """Results of one class of ranks."""

    name: str
    ranks: int
    steps: int
    samples_per_s: float
    """Throughput of all ranks of the class, from gradients that went into the model."""
    idle_fraction: float
    """Share of the time in which its accelerators computed nothing: they waited, for data, for others, or for a network."""
    dropped: int
    """Gradients that came too late for the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Number of updates between reading the parameters and applying a gradient."""

    mean: float
    p95: int
    maximum: int
    max_lead: int
    """Steps that the fastest worker was ahead of the slowest, at most."""
    histogram: tuple[tuple[int, int], ...]
    """(staleness, gradients), ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsReport:
    """Statistics of several steps."""

    steps: int
    mean_s: float
    median_s: float
    p95_s: float
    confidence_interval_s: tuple[float, float] | None
    """95 % interval of the mean; None for one step."""
    waited_for: tuple[WaitedFor, ...]
    """Longest first; empty without waiting."""
    workers: tuple[WorkerSteps, ...]
    staleness: Staleness | None
    """None where every gradient is of the parameters that it changes."""


def in_whole_steps(timeline: Timeline) -> Timeline:
    """Return a run of workers at their own pace with the step time that their whole steps give.

    When the last step is through the others are cut off, half of one each on average. The rate of a worker is that of the steps that it has
    ended until the end of the last of them, and the step time that in which all of them together take as many samples as there are
    in a batch. What links carry in a step shrinks with it.
    """
    log = timeline.steps
    if log is None or not timeline.step_time_s:
        return timeline
    workers = [(done, each.n_ranks) for done, each in zip(log.classes, timeline.rank_classes, strict=True) if done.last_end_s > 0.0]
    rate_per_s = fsum(n_ranks * (done.steps / done.last_end_s) for done, n_ranks in workers)
    share = sum(n_ranks for _, n_ranks in workers) / (rate_per_s * timeline.step_time_s) if rate_per_s > 0.0 else 1.0
    links = tuple(
        replace(
            link,
            bytes=share * link.bytes,
            busy_s=share * link.busy_s,
            bytes_of=tuple((names, share * size) for names, size in link.bytes_of),
        )
        for link in timeline.links
    )
    return replace(timeline, step_time_s=share * timeline.step_time_s, links=links)


def in_own_time(timeline: Timeline) -> Timeline:
    """Return one step as seen by each rank class.

    Time is counted for each class by itself: the wait for its first pass is left out, because its last step lasts until then. A step
    takes as long as that of the longest class. Repeated at that pace, no class works on two steps at once, and none waits longer.
    """
    import numpy as np

    from clustersim.trace.columns import Spans, columns_of

    columns = columns_of(timeline.spans).whole()
    classes = np.array([span.rank_class for span in columns.patterns], dtype=np.int64)[columns.pattern]
    computes = np.array([span.stream == COMPUTE_STREAM for span in columns.patterns], dtype=np.bool_)[columns.pattern]
    passes = computes & np.array([span.kind in PASS_KINDS for span in columns.patterns], dtype=np.bool_)[columns.pattern]
    first_s, before_s = np.full(len(timeline.rank_classes), inf), np.zeros(len(timeline.rank_classes))
    np.minimum.at(first_s, classes[passes], columns.start_s[passes])
    stays = computes & (columns.end_s <= first_s[classes])
    np.maximum.at(before_s, classes[stays], columns.end_s[stays])
    late_s = np.where(stays, 0.0, np.where(np.isfinite(first_s), first_s - before_s, 0.0)[classes])
    start_s, end_s = np.maximum(0.0, columns.start_s - late_s), np.maximum(0.0, columns.end_s - late_s)
    spans = Spans(replace(columns, start_s=start_s, end_s=end_s))
    return replace(timeline, spans=spans, step_time_s=float(end_s.max(initial=0.0)))


def steps_report(log: StepLog, timeline: Timeline, samples: Sequence[float], *, slow: Sequence[str] = ()) -> StepsReport:
    """Return the statistics of a run of several steps.

    Parameters
    ----------
    samples
        What each class contributes in one step.
    slow
        For each class, the ranks of it that are slower than the others; all are alike when left out.
    """
    classes = timeline.rank_classes
    computing = _computing_s(timeline)
    workers = tuple(
        WorkerSteps(
            name=rank_class.name,
            ranks=rank_class.n_ranks,
            steps=done.steps,
            samples_per_s=(done.steps - done.dropped) * each / done.last_end_s if done.last_end_s > 0.0 else 0.0,
            idle_fraction=max(0.0, 1.0 - busy_s / log.duration_s) if log.duration_s > 0.0 else 0.0,
            dropped=done.dropped,
        )
        for rank_class, done, each, busy_s in zip(classes, log.classes, samples, computing, strict=True)
    )
    share = timeline.step_time_s / log.mean_s if log.mean_s > 0.0 else 1.0
    interval_s = log.interval_s
    return StepsReport(
        steps=log.n_steps,
        mean_s=timeline.step_time_s,
        median_s=log.median_s,
        p95_s=log.p95_s,
        confidence_interval_s=None if interval_s is None else (share * interval_s[0], share * interval_s[1]),
        waited_for=_waited_for(log, classes, slow or [""] * len(classes)),
        workers=workers,
        staleness=_staleness(log),
    )


def _computing_s(timeline: Timeline) -> tuple[float, ...]:
    """Return for each class how long its accelerators computed, the host's share of a step included."""
    import numpy as np

    from clustersim.trace.columns import columns_of

    columns = columns_of(timeline.spans)
    lasted_s = np.bincount(columns.pattern, weights=columns.weights() * (columns.end_s - columns.start_s), minlength=len(columns.patterns))
    busy: list[list[float]] = [[] for _ in timeline.rank_classes]
    for span, count, seconds in zip(columns.patterns, columns.counts().tolist(), lasted_s.tolist(), strict=True):
        if span.stream == COMPUTE_STREAM:
            busy[span.rank_class].append(seconds - count * fsum(exposed_s for _, exposed_s in span.exposed_s))
    return tuple(fsum(spans) for spans in busy)


def _waited_for(log: StepLog, classes: Sequence[RankClass], slow: Sequence[str]) -> tuple[WaitedFor, ...]:
    found = [
        WaitedFor(
            name=rank_class.name,
            ranks=rank_class.n_ranks,
            slow=slowest,
            waited_s=done.waited_s / log.n_steps,
            steps_fraction=done.waited_steps / log.n_steps,
        )
        for rank_class, done, slowest in zip(classes, log.classes, slow, strict=True)
        if done.waited_s > 0.0
    ]
    return tuple(sorted(found, key=lambda each: -each.waited_s))


def _staleness(log: StepLog) -> Staleness | None:
    ages = [(age, count) for age, count in log.staleness if count]
    if not any(age for age, _ in ages):
        return None
    total = fsum(count for _, count in ages)
    seen, p95 = 0, 0
    for age, count in ages:
        seen, p95 = seen + count, age
        if seen >= 0.95 * total:
            break
    return Staleness(mean=log.mean_staleness, p95=p95, maximum=ages[-1][0] if ages else 0, max_lead=log.max_lead, histogram=tuple(ages))
