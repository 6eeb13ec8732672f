"""Reduce a Timeline to metrics: where the time of a step went."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.report.metrics import Breakdown, BusyLink, ByDimension, TierUse
from clustersim.trace.timeline import DIMENSIONS, RankClass, Span, Timeline

Interval = tuple[float, float]

N_BUSIEST: Final = 20
"""Groups of links that a result lists."""


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint intervals in order.

    Examples
    --------
    >>> merged([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def _covered(gap: Interval, union: Sequence[Interval]) -> tuple[float, list[Interval]]:
    """Return how much of a gap a union covers, and what it leaves."""
    first = max(0, bisect_left(union, (gap[0], gap[0])) - 1)
    left: list[Interval] = []
    covered_s, at = 0.0, gap[0]
    for start, end in union[first:]:
        if start >= gap[1]:
            break
        if end <= at:
            continue
        begin = max(start, at)
        if begin > at:
            left.append((at, begin))
        at = min(end, gap[1])
        covered_s += at - begin
    if at < gap[1]:
        left.append((at, gap[1]))
    return covered_s, left


@dataclass(slots=True, kw_only=True)
class ClassTimes:
    """Where the step of one rank class went, in seconds; all but ``hidden`` sum to the step time."""

    compute: float = 0.0
    optimizer: float = 0.0
    host: float = 0.0
    idle: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict[str, float])
    hidden: dict[str, float] = field(default_factory=dict[str, float])


def class_times(spans: Sequence[Span], step_time_s: float, *, sends_block: bool) -> ClassTimes:
    """Return where one rank class's step went.

    What happens on the compute stream is computation, optimizer or host work; collectives inside a pass are exposed as far as
    nothing runs beside them. While that stream is empty, communication of the class that is in flight counts as exposed, each moment
    once, in the order of ``DIMENSIONS``; what remains is idle.

    Parameters
    ----------
    spans
        All spans of the class.
    sends_block
        True where a pass waits for the sends before it; otherwise only receives can hold it up.
    """
    times = ClassTimes()
    gaps: list[Interval] = []
    at = 0.0
    compute = sorted((span for span in spans if span.stream == COMPUTE_STREAM), key=lambda span: span.start_s)
    for span in compute:
        if span.start_s > at:
            gaps.append((at, span.start_s))
        at = span.end_s
        _add_span(times, span)
    if step_time_s > at:
        gaps.append((at, step_time_s))
    beside = [span for span in spans if span.stream != COMPUTE_STREAM]
    for dimension in DIMENSIONS:
        of_dimension = [span for span in beside if span.dimension == dimension]
        in_flight = merged((span.start_s, span.end_s) for span in of_dimension)
        stopping = in_flight if sends_block else merged((s.start_s, s.end_s) for s in of_dimension if not s.stream.startswith("send"))
        rest: list[Interval] = []
        exposed_s = 0.0
        for gap in gaps:
            covered_s, left = _covered(gap, stopping)
            exposed_s += covered_s
            rest += left
        gaps = rest
        _add(times.exposed, dimension, exposed_s)
        _add(times.hidden, dimension, fsum(end - start for start, end in in_flight) - exposed_s)
    times.idle = fsum(end - start for start, end in gaps)
    return times


def _add(account: dict[str, float], dimension: str, seconds: float) -> None:
    account[dimension] = account.get(dimension, 0.0) + max(seconds, 0.0)


def _add_span(times: ClassTimes, span: Span) -> None:
    exposed_s = 0.0
    for dimension, seconds in span.exposed_s:
        _add(times.exposed, dimension, seconds)
        exposed_s += seconds
    for dimension, seconds in span.hidden_s:
        _add(times.hidden, dimension, seconds)
    times.host += span.host_s
    working_s = span.end_s - span.start_s - exposed_s - span.host_s
    match span.kind:
        case "optimizer":
            times.optimizer += working_s
        case "host":
            times.host += working_s
        case _:
            times.compute += working_s


def breakdown(timeline: Timeline, *, sends_block: bool, pipelined: bool) -> tuple[Breakdown, ByDimension]:
    """Return what the step time went to, mean over ranks and steps, and the communication that was hidden.

    Parameters
    ----------
    pipelined
        True where idle time is pipeline bubble; otherwise it is a stall.
    """
    by_class: dict[int, list[Span]] = {index: [] for index in range(len(timeline.rank_classes))}
    for span in timeline.spans:
        by_class[span.rank_class].append(span)
    times = [class_times(spans, timeline.duration_s, sends_block=sends_block) for spans in by_class.values()]
    mean = _Mean.over(timeline.rank_classes, share=timeline.step_time_s / timeline.duration_s if timeline.duration_s > 0.0 else 1.0)
    idle = mean.of([each.idle for each in times])
    parts = Breakdown(
        compute=mean.of([each.compute for each in times]),
        exposed_communication=mean.by_dimension([each.exposed for each in times]),
        bubble=idle if pipelined else 0.0,
        stall=0.0 if pipelined else idle,
        optimizer=mean.of([each.optimizer for each in times]),
        host=mean.of([each.host for each in times]),
    )
    return parts, mean.by_dimension([each.hidden for each in times])


@dataclass(frozen=True, slots=True)
class _Mean:
    """Mean over ranks of a share of a figure given for each class."""

    weights: tuple[float, ...]

    @classmethod
    def over(cls, classes: Sequence[RankClass], *, share: float) -> _Mean:
        total = sum(each.n_ranks for each in classes)
        return cls(tuple(each.n_ranks / total * share for each in classes))

    def of(self, values: Sequence[float]) -> float:
        return fsum(weight * value for weight, value in zip(self.weights, values, strict=True))

    def by_dimension(self, accounts: Sequence[Mapping[str, float]]) -> ByDimension:
        means = {dimension: self.of([account.get(dimension, 0.0) for account in accounts]) for dimension in DIMENSIONS}
        return ByDimension(**means)


def tier_use(timeline: Timeline, links_per_tier: Mapping[str, tuple[int, float]]) -> tuple[TierUse, ...]:
    """Return the use of each tier of links over the step.

    Parameters
    ----------
    links_per_tier
        For each tier, its number of links and their summed data-sheet bandwidth in bytes per second.
    """
    uses: list[TierUse] = []
    for tier, (n_links, bandwidth_bytes_per_s) in links_per_tier.items():
        cells = [link for link in timeline.links if link.tier == tier]
        carried = fsum(link.bytes * link.n_links for link in cells)
        if n_links == 0:
            continue
        mean = carried / (bandwidth_bytes_per_s * timeline.step_time_s) if timeline.step_time_s > 0.0 else 0.0
        peak = max((link.peak_utilisation for link in cells), default=0.0)
        uses.append(TierUse(tier=tier, mean_utilisation=mean, peak_utilisation=peak, bytes=carried))
    return tuple(uses)


def busiest_links(timeline: Timeline) -> tuple[BusyLink, ...]:
    """Return the groups of equal links that carried most for their bandwidth, busiest first."""
    step_s = timeline.step_time_s
    used = [
        BusyLink(
            name=link.name,
            tier=link.tier,
            n_links=link.n_links,
            bytes=link.bytes,
            mean_utilisation=link.bytes / (link.bandwidth_bytes_per_s * step_s) if step_s > 0.0 else 0.0,
            peak_utilisation=link.peak_utilisation,
            users=link.users,
            meetings=link.meetings,
        )
        for link in timeline.links
        if link.bytes > 0.0
    ]
    return tuple(sorted(used, key=lambda link: (-link.mean_utilisation, link.tier, link.name))[:N_BUSIEST])
