"""Reduce a Timeline to metrics: where the time of a step went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from math import fsum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.measure.metrics import Breakdown, BusyLink, ByDimension, SharedLink, TierUse, nine_digits
from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.columns import SpanColumns, columns_of
from clustersim.trace.timeline import DIMENSIONS, RankClass, Span, Timeline

Mask = NDArray[np.bool_]

N_BUSIEST: Final = 20
"""Groups of links that a result lists."""


@dataclass(slots=True, kw_only=True)
class ClassTimes:
    """Breakdown of the step of one rank class, in seconds; all but ``hidden`` sum to the step time."""

    compute: float = 0.0
    optimizer: float = 0.0
    host: float = 0.0
    idle: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict[str, float])
    hidden: dict[str, float] = field(default_factory=dict[str, float])


def times_by_class(columns: SpanColumns, n_classes: int, duration_s: float, *, sends_block: bool) -> list[ClassTimes]:
    """Return where the time of each rank class went.

    What happens on the compute stream is computation, optimizer or host work; collectives inside a pass are exposed as far as
    nothing runs beside them. While that stream is empty, communication of the class that is in flight counts as exposed, each moment
    once, in the order of ``DIMENSIONS``; what remains is idle.

    Parameters
    ----------
    duration_s
        Of all that happened, repetitions included.
    sends_block
        True where a pass waits for the sends before it; otherwise only receives can hold it up.
    """
    times = _inside_passes(columns, n_classes)
    streams, pattern = [each.stream for each in columns.patterns], columns.pattern
    beside = np.array([stream != COMPUTE_STREAM for stream in streams], dtype=np.bool_)[pattern]
    stops = np.array([sends_block or not stream.startswith("send") for stream in streams], dtype=np.bool_)[pattern]
    moved = np.array([DIMENSIONS.index(each.dimension) if each.dimension else -1 for each in columns.patterns], dtype=np.int64)[pattern]
    classes = np.array([each.rank_class for each in columns.patterns], dtype=np.int64)[pattern]
    end_s = duration_s - (columns.repetition.added_s if columns.repetition else 0.0)
    rows = np.argsort(classes, kind="stable")
    for each, (first, stop) in enumerate(pairwise(np.searchsorted(classes[rows], np.arange(n_classes + 1)).tolist())):
        own = rows[first:stop]
        beside_own = _Beside(moved=np.where(beside, moved, _COMPUTING)[own], stops=stops[own])
        _add_gaps(times[each], columns.taken(own), beside_own, end_s=end_s)
    return times


_COMPUTING: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Beside:
    """For each row what it moves."""

    moved: NDArray[np.int64]
    """Place of its dimension in ``DIMENSIONS``."""
    stops: Mask
    """Whether a pass can wait for it."""


def _inside_passes(columns: SpanColumns, n_classes: int) -> list[ClassTimes]:
    """Return what happened on the compute streams; nothing of it overlaps."""
    times = [ClassTimes() for _ in range(n_classes)]
    lasted_s = columns.weights() * (columns.end_s - columns.start_s)
    busy_s = np.bincount(columns.pattern, weights=lasted_s, minlength=len(columns.patterns))
    for span, count, seconds in zip(columns.patterns, columns.counts().tolist(), busy_s.tolist(), strict=True):
        if span.stream == COMPUTE_STREAM:
            _add_passes(times[span.rank_class], span, count, seconds)
    return times


def _add_passes(times: ClassTimes, span: Span, count: float, seconds: float) -> None:
    """Add a number of spans of one kind with a total duration."""
    exposed_s = count * fsum(each for _, each in span.exposed_s)
    for account, pairs in ((times.exposed, span.exposed_s), (times.hidden, span.hidden_s)):
        for dimension, each in pairs:
            _add(account, dimension, count * each)
    host_s = count * span.host_s
    times.host += host_s
    working_s = seconds - exposed_s - host_s
    match span.kind:
        case "optimizer":
            times.optimizer += working_s
        case "host":
            times.host += working_s
        case _:
            times.compute += working_s


def _add_gaps(times: ClassTimes, columns: SpanColumns, beside: _Beside, *, end_s: float) -> None:
    """Add what one class did while its compute stream was empty, up to a moment."""
    again = columns.repetition
    cuts_s = [0.0, end_s] if again is None else [0.0, end_s, again.start_s, again.end_s]
    edges_s = np.unique(np.concatenate((columns.start_s, columns.end_s, cuts_s)))
    lengths_s = np.diff(edges_s)
    if again is not None:
        lengths_s *= again.weights(edges_s[:-1])
    starts, ends = np.searchsorted(edges_s, columns.start_s), np.searchsorted(edges_s, columns.end_s)

    def covered(rows: Mask) -> Mask:
        change = np.bincount(starts[rows], minlength=len(edges_s)) - np.bincount(ends[rows], minlength=len(edges_s))
        return np.cumsum(change[:-1]) > 0

    gaps = ~covered(beside.moved == _COMPUTING) & (edges_s[:-1] >= 0.0) & (edges_s[1:] <= end_s)
    for number, dimension in enumerate(DIMENSIONS):
        of_dimension = beside.moved == number
        exposed_s = in_flight_s = 0.0
        if of_dimension.any():
            in_flight, stopping = covered(of_dimension), gaps & covered(of_dimension & beside.stops)
            exposed_s, in_flight_s = float(lengths_s[stopping].sum()), float(lengths_s[in_flight].sum())
            gaps &= ~stopping
        _add(times.exposed, dimension, exposed_s)
        _add(times.hidden, dimension, in_flight_s - exposed_s)
    times.idle = float(lengths_s[gaps].sum())


def _add(account: dict[str, float], dimension: str, seconds: float) -> None:
    account[dimension] = account.get(dimension, 0.0) + max(seconds, 0.0)


def breakdown(timeline: Timeline, *, sends_block: bool, pipelined: bool) -> tuple[Breakdown, ByDimension]:
    """Return the parts of the step time, mean over ranks and steps, and the overlapped communication.

    Parameters
    ----------
    pipelined
        True where idle time is pipeline bubble; otherwise it is a stall.
    """
    columns = columns_of(timeline.spans)
    times = times_by_class(columns, len(timeline.rank_classes), timeline.duration_s, sends_block=sends_block)
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


def shared_links(timeline: Timeline, own: str) -> tuple[SharedLink, ...]:
    """Return the links with contention among several jobs and its duration; longest first.

    Parameters
    ----------
    own
        Name of the scenario, for its own job; operations of the others begin with the names of their jobs.
    """
    others = [job.name for job in timeline.jobs]
    found: list[SharedLink] = []
    for link in timeline.links if others else ():
        met: dict[tuple[str, ...], float] = {}
        for meeting in link.meetings:
            of_each = {_job_of(name, others) for name in meeting.names}
            # Another job may have the name of the scenario.
            jobs = (*((own,) if None in of_each else ()), *(job for job in others if job in of_each))
            if len(jobs) > 1:
                met[jobs] = met.get(jobs, 0.0) + meeting.seconds
        found += [
            SharedLink(name=link.name, tier=link.tier, n_links=link.n_links, jobs=jobs, contended_s=seconds)
            for jobs, seconds in met.items()
        ]
    return tuple(sorted(found, key=lambda link: (-nine_digits(link.contended_s), link.tier, link.name, link.jobs)))


def _job_of(name: str, others: Sequence[str]) -> str | None:
    """Return the job of an operation, None for the scenario's own; jobs with equal link loads share one name."""
    return next((job for job in others if name.startswith(f"{job}: ")), None)


def busiest_links(timeline: Timeline) -> tuple[BusyLink, ...]:
    """Return the groups of equal links that carried most for their bandwidth, busiest first."""
    step_s = timeline.step_time_s
    # Links that carry as much are in the order of their names, whatever sums in another order are rounded to.
    used = (
        (link.bytes / (link.bandwidth_bytes_per_s * step_s) if step_s > 0.0 else 0.0, link) for link in timeline.links if link.bytes > 0.0
    )
    busiest = nsmallest(N_BUSIEST, used, key=lambda each: (-nine_digits(each[0]), each[1].tier, each[1].name))
    return tuple(
        BusyLink(
            name=link.name,
            tier=link.tier,
            n_links=link.n_links,
            bytes=link.bytes,
            mean_utilisation=mean_utilisation,
            peak_utilisation=link.peak_utilisation,
            users=link.users,
            meetings=link.meetings,
        )
        for mean_utilisation, link in busiest
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """Inputs of the formulas."""

    schedule: str
    n_stages: int
    n_micro_batches: int
    virtual_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Mean times of all passes of one micro-batch on one stage, in seconds."""

    forward_s: float
    backward_s: float
    """Time of input and weight gradients, in seconds."""
    weight_s: float
    """Time of weight gradients, in seconds, where these are separate passes."""

    @property
    def both_s(self) -> float:
        """There and back."""
        return self.forward_s + self.backward_s


Formula = Callable[[PipelineShape, PassTimes], float]
"""The bubble of a stage, in seconds."""

BUBBLES_S: Final[Mapping[str, Formula]] = MappingProxyType(
    {
        "naive": lambda pipe, times: (pipe.n_stages - 1) * pipe.n_micro_batches * times.both_s,
        "gpipe": lambda pipe, times: (pipe.n_stages - 1) * times.both_s,
        "1f1b": lambda pipe, times: (pipe.n_stages - 1) * times.both_s,
        "interleaved_1f1b": lambda pipe, times: (pipe.n_stages - 1) * times.both_s / pipe.virtual_stages,
        "breadth_first": lambda pipe, times: (pipe.n_stages - 1) * times.both_s / pipe.virtual_stages,
        "zb_h1": lambda pipe, times: (pipe.n_stages - 1) * (times.both_s - 2 * times.weight_s),
        "zb_h2": lambda pipe, times: (pipe.n_stages - 1) * (times.both_s - 3 * times.weight_s),
    }
)
"""By schedule, as `docs/theory/pipeline.md` derives them; the others have none that holds for any times."""


def closed_form_bubble(pipe: PipelineShape, timeline: Timeline) -> float | None:
    r"""Return the share of the pipeline's time that formulas expect to be bubble; None where there is none.

    :math:`b / (m (t_f + t_b) + b)`, with the bubble :math:`b` of the schedule and the mean times of the passes that were simulated, so
    that it says what the order alone costs: transfers, uneven stages and what comes before and after the pipeline are not in it.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC21, section 2.2.
    """
    formula = BUBBLES_S.get(pipe.schedule)
    if formula is None or pipe.n_stages < 2:
        return None
    times = pass_times(pipe, timeline)
    ideal_s = pipe.n_micro_batches * times.both_s
    bubble_s = max(formula(pipe, times), 0.0)
    return bubble_s / (ideal_s + bubble_s) if ideal_s > 0.0 else None


def pass_times(pipe: PipelineShape, timeline: Timeline) -> PassTimes:
    """Return mean times of the passes of one micro-batch, over rank classes and micro-batches; of all chunks of a stage together."""
    columns = columns_of(timeline.spans)
    lasted_s = np.bincount(columns.pattern, weights=columns.weights() * (columns.end_s - columns.start_s), minlength=len(columns.patterns))
    total: dict[str, float] = {}
    for span, seconds in zip(columns.patterns, lasted_s.tolist(), strict=True):
        total[span.kind] = total.get(span.kind, 0.0) + seconds
    each = len(timeline.rank_classes) * pipe.n_micro_batches
    mean = {kind: seconds / each for kind, seconds in total.items()}
    weight_s = mean.get("weight", 0.0)
    backward_s = mean.get("backward", 0.0) + mean.get("input", 0.0) + weight_s
    return PassTimes(forward_s=mean.get("forward", 0.0), backward_s=backward_s, weight_s=weight_s)
