"""Find a period of a step that repeats with later micro-batches, so that it is replayed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clustersim.engine.alone import Carried
from clustersim.engine.clock import Clock
from clustersim.engine.replay import Replay
from clustersim.network.rates import State
from clustersim.program.tasks import COMPUTE_STREAM, Compute
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.trace.columns import Spans
from clustersim.trace.step_log import Repetition
from clustersim.trace.timeline import PASS_KINDS, Timeline

_N_PERIODS: Final = 8
"""Lengths that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchPaths:
    """Routes of micro-batches through the model."""

    first: tuple[int, ...]
    """The first micro-batch of each route."""
    n_micro_batches: int
    """Increase of the micro-batch number of each route per repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedWindow:
    """A period equal to the one before it, which is that of earlier micro-batches."""

    start_s: float
    end_s: float
    n_passes: tuple[tuple[int, int], ...]
    """For each rank class, how many of its passes have started when the stretch starts, and when it ends."""
    stages: tuple[int, ...]
    """Stage of each rank class."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayRecord:
    """All that was done in a replay that has ended."""

    start_s: FloatArray
    end_s: FloatArray
    next: IntArray
    """For each row the corresponding row a number of micro-batches, or steps, later; -1 without any."""

    def shifts(self, rows: IntArray) -> FloatArray:
        """Return by how much later those start that follow some rows."""
        rows = rows[self.next[rows] >= 0]
        return self.start_s[self.next[rows]] - self.start_s[rows]

    def window(self, period_s: float) -> tuple[float, float] | None:
        """Return a stretch of this length that is like the one before it; the one whose ends are farthest from all that happens."""
        follows = self.next >= 0
        later = self.next[follows]
        same = self.start_s[later] - self.start_s[follows] == period_s
        same &= self.end_s[later] - self.end_s[follows] == period_s
        goes_on, came = np.zeros_like(follows), np.zeros_like(follows)
        goes_on[np.flatnonzero(follows)[same]] = True
        came[later[same]] = True
        moments_s = np.unique(np.concatenate((self.start_s, self.end_s)))
        gaps_s = np.diff(moments_s)
        ends_s = moments_s[:-1] + 0.5 * gaps_s
        starts_s, before_s = ends_s - period_s, ends_s - 2.0 * period_s
        valid = before_s > 0.0
        valid &= _n_between(self.start_s[~goes_on], before_s, starts_s) == 0
        valid &= _n_between(self.start_s[~came], starts_s, ends_s) == 0
        room_s = np.minimum.reduce([_distance(moments_s, each) for each in (ends_s, starts_s, before_s)])
        valid &= room_s > 0.0
        for place in np.flatnonzero(valid)[np.argsort(-room_s[valid], kind="stable")].tolist():
            start_s, end_s = float(starts_s[place]), float(ends_s[place])
            # What is in progress at the end began in it, and what is at its start began in the one before.
            if not (self._outlasts(start_s, end_s) or self._outlasts(start_s - period_s, start_s)):
                return start_s, end_s
        return None

    def _outlasts(self, start_s: float, end_s: float) -> bool:
        """Return whether anything is in progress from before a stretch to after it."""
        return bool(((self.start_s < start_s) & (self.end_s > end_s)).any())


def _n_between(moments_s: FloatArray, from_s: FloatArray, to_s: FloatArray) -> IntArray:
    ordered = np.sort(moments_s)
    return np.searchsorted(ordered, to_s) - np.searchsorted(ordered, from_s)


def _distance(moments_s: FloatArray, to_s: FloatArray) -> FloatArray:
    """Return how far each is from the nearest of some moments in order."""
    after = np.searchsorted(moments_s, to_s)
    behind_s = np.abs(moments_s[np.minimum(after, len(moments_s) - 1)] - to_s)
    return np.minimum(behind_s, np.abs(to_s - moments_s[np.maximum(after - 1, 0)]))


def window_of(replay: Replay, ways: MicroBatchPaths) -> RepeatedWindow | None:
    """Return a stretch of a replay that has ended that is like the one before it, or None where there is none.

    All tasks that start in the one before are followed by the same for micro-batches so many later, that start and end as much later as
    the stretch is long, and nothing else starts in it; on the network the same flow classes start and land.
    """
    if not replay.program.tasks:
        return None
    rows = _rows(replay, ways)
    for period_s in _periods(replay, rows):
        found = rows.window(period_s)
        if found is None or not is_repeated_on_links(replay.clock, *found):
            continue
        counts = _passes_before(replay, found[0]), _passes_before(replay, found[1])
        if _is_balanced(*counts, ways):
            n_passes = [tuple(sum(each[rank_class].values()) for each in counts) for rank_class in range(len(counts[0]))]
            stages = tuple(rank_class.stage for rank_class in replay.program.rank_classes)
            return RepeatedWindow(
                start_s=found[0], end_s=found[1], n_passes=tuple((before, after) for before, after in n_passes), stages=stages
            )
    return None


def _rows(replay: Replay, ways: MicroBatchPaths) -> ReplayRecord:
    """Return tasks with their successors: the same template and ordinal in a later micro-batch."""
    start_s, end_s = np.array(replay.start_s), np.array(replay.ended_s)
    label = np.array([task.micro_batch for task in replay.program.tasks], dtype=np.int64)
    template = np.array(replay.prepared.templates.of_task, dtype=np.int64)
    n_labels = int(label.max(initial=0)) + 1 + ways.n_micro_batches
    group = template * n_labels + label
    order = np.argsort(group, kind="stable")
    first = np.concatenate(([True], np.diff(group[order]) != 0))
    number = np.zeros(len(template), dtype=np.int64)
    places = np.arange(len(template))
    number[order] = places - places[first][np.cumsum(first) - 1]
    key: IntArray = (template * (1 + int(number.max(initial=0))) + number) * n_labels + label
    sorted_by, wanted = np.argsort(key), key + ways.n_micro_batches
    place = np.minimum(np.searchsorted(key[sorted_by], wanted), len(key) - 1)
    later = sorted_by[place]
    way = np.searchsorted(np.array(ways.first), label, side="right")
    there = (key[later] == wanted) & (label >= 0) & (way[later] == way)
    return ReplayRecord(start_s=start_s, end_s=end_s, next=np.where(there, later, -1))


def _periods(replay: Replay, rows: ReplayRecord) -> list[float]:
    """Return lengths to be tried: how far the passes of the first class follow each other, those that start last first."""
    first = min((task.lanes[0].rank_class for task in replay.prepared.templates.tasks if isinstance(task.action, Compute)), default=0)
    own = [
        isinstance(task.action, Compute) and task.action.phase == "forward" and task.lanes[0].rank_class == first
        for task in replay.prepared.templates.tasks
    ]
    passes = np.flatnonzero(np.array(own)[np.array(replay.prepared.templates.of_task)])
    shifts_s = rows.shifts(passes[np.argsort(-rows.start_s[passes], kind="stable")])
    found: list[float] = []
    for shift_s in shifts_s.tolist():
        if shift_s > 0.0 and shift_s not in found:
            found.append(shift_s)
        if len(found) == _N_PERIODS:
            break
    return found


def is_repeated_on_links(clock: Clock, start_s: float, end_s: float) -> bool:
    """Return whether the same flow classes start and land in a stretch as in the one before, each as much later."""
    if not clock.log:
        return True
    moment_s, flow_class, change = (np.array(column) for column in zip(*clock.log, strict=True))
    period_s = end_s - start_s
    order = np.lexsort((moment_s, change, flow_class))
    moment_s, flow_class, change = moment_s[order], flow_class[order], change[order]
    now, before = (moment_s >= start_s) & (moment_s < end_s), (moment_s >= start_s - period_s) & (moment_s < start_s)
    if now.sum() != before.sum() or (flow_class[now] != flow_class[before]).any() or (change[now] != change[before]).any():
        return False
    if np.bincount(flow_class[now], weights=change[now]).any():
        return False
    return bool((moment_s[now] - moment_s[before] == period_s).all())


Passes = Sequence[Counter[tuple[str, int]]]
"""For each rank class, how many passes of each kind and chunk."""


def _passes_before(replay: Replay, moment_s: float) -> Passes:
    """Return how many passes have started, pieces of one counted once."""
    seen: set[tuple[int, str, int, int]] = set()
    tasks = replay.program.tasks
    for index in np.flatnonzero(np.array(replay.start_s) < moment_s).tolist():
        task = tasks[index]
        if task.micro_batch >= 0 and isinstance(task.action, Compute) and task.action.phase in PASS_KINDS:
            for rank_class, stream in task.lanes:
                if stream == COMPUTE_STREAM:
                    seen.add((rank_class, task.action.phase, task.chunk, task.micro_batch))
    counts: Passes = [Counter() for _ in replay.program.rank_classes]
    for rank_class, phase, chunk, _ in seen:
        counts[rank_class][phase, chunk] += 1
    return counts


def _is_balanced(before: Passes, after: Passes, ways: MicroBatchPaths) -> bool:
    """Return whether as many micro-batches go forward as backward, through each chunk of each class."""
    for earlier, later in zip(before, after, strict=True):
        grown = later - earlier
        for chunk in {chunk for _, chunk in later}:
            forward, back, inputs, weights = (grown[kind, chunk] for kind in PASS_KINDS)
            if {forward, back + inputs, back + weights} != {ways.n_micro_batches}:
                return False
    return any(after)


def repeating(timeline: Timeline, repetition: Repetition) -> Timeline:
    """Return the timeline of a replay of which a stretch repeats."""
    assert isinstance(timeline.spans, Spans)  # those of a replay
    engine = replace(timeline.engine, passes=(*timeline.engine.passes, "repeat"))
    return replace(timeline, spans=Spans(replace(timeline.spans.columns, repetition=repetition)), engine=engine)


def carried_within(replay: Replay, start_s: float, end_s: float) -> Carried:
    """Return the traffic of a stretch that is like the one before it: that of the tasks that start in it."""
    prepared, starts_s = replay.prepared, np.array(replay.start_s)
    inside = np.flatnonzero((starts_s >= start_s) & (starts_s < end_s)).tolist()
    found = Carried(seconds=flown_within(replay.clock, start_s, end_s))
    for template, count in Counter(prepared.templates.of_task[index] for index in inside if index not in replay.contended).items():
        found.add(prepared.carried[template], count)
    for index in sorted(replay.contended.intersection(inside)):
        found.add(Carried(bytes=prepared.carried[prepared.templates.of_task[index]].bytes))
    return found


def flown_within(clock: Clock, start_s: float, end_s: float) -> dict[State, float]:
    """Return for how many seconds of a stretch each combination of flow classes was on the network."""
    seconds: dict[State, float] = {}
    components = clock.network.wiring.components
    counts: dict[int, Counter[int]] = {}
    since_s: dict[int, float] = {}
    for moment_s, flow_class, change in (*(clock.log or ()), *((end_s, flow_class, 0) for flow_class in range(len(components)))):
        component = int(components[flow_class])
        state, lasted_s = counts.setdefault(component, Counter()), min(moment_s, end_s) - max(since_s.get(component, 0.0), start_s)
        if state and lasted_s > 0.0:
            key = tuple(sorted(state.items()))
            seconds[key] = seconds.get(key, 0.0) + lasted_s
        since_s[component] = moment_s
        state[flow_class] += change
        if not state[flow_class]:
            del state[flow_class]
    return seconds
