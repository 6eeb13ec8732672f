"""Flows in flight in ticks of time: the progress of each, and the next end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray

INF: Final = float("inf")
TICK_S: Final = 2.0**-36
"""One tick, 15 ps. Times are whole numbers of ticks, held as seconds in floating point; up to ``LONGEST_S`` sums of them are exact."""
_PER_SECOND: Final = 2.0**36
LONGEST_S: Final = 2.0**17
"""Longest time that counts every tick: 36 hours."""


def whole_ticks_s(seconds: float) -> float:
    """Return a time in whole ticks.

    Examples
    --------
    >>> first, second, third = 0.1, 0.2, 0.3
    >>> first + (second + third) == (first + second) + third
    False
    >>> first, second, third = whole_ticks_s(0.1), whole_ticks_s(0.2), whole_ticks_s(0.3)
    >>> first + (second + third) == (first + second) + third
    True
    """
    return round(seconds * _PER_SECOND) * TICK_S if seconds < INF else seconds


REBASE: Final = 1e3
"""Ratio of bytes moved by a flow class to those of a starting flow beyond which bytes are counted anew."""
FEW: Final = 16
"""Number of flow classes up to which they are handled one by one; vector operations are faster for more."""
BOUNDLESS: Final = 1e300
"""Rate of flows that cross no link, in bytes per second: they end at once, and background flows remain finite."""


@dataclass(slots=True)
class Column:
    """One number for each flow class, to be had one by one and, in the same memory, all together. The last belongs to no flow class."""

    idle: float
    """Number of a flow class that was never in flight."""
    each: array[float] = field(init=False)
    all: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        """Begin without flow classes."""
        self.each = array("d", [self.idle])
        self.all = np.frombuffer(self.each, dtype=np.float64)

    def grow(self, n_flow_classes: int) -> None:
        """Make room for flow classes."""
        self.each = array("d", [*self.each[:-1], *[self.idle] * (n_flow_classes - len(self.each) + 2)])
        self.all = np.frombuffer(self.each, dtype=np.float64)


@dataclass(slots=True)
class FlowsInFlight:
    """Bytes and ends of flows by flow class.

    All flows of a flow class have the same rate, so that one figure says how far each of them has got: the bytes that a flow of the class
    has moved since the class was last idle. A flow that starts when that is m bytes lands when it is m and its own bytes.
    """

    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each flow class that has any."""
    _flows: dict[int, tuple[int, int, float, float]] = field(default_factory=dict[int, tuple[int, int, float, float]])
    """Class, turn and bytes of each flow in flight, and the bytes of the class at which it started."""
    _landings: list[list[tuple[float, int, int]]] = field(default_factory=list[list[tuple[float, int, int]]])
    """For each flow class a heap of (bytes of the class at its end, sequence number, flow), stopped flows included."""
    _done_bytes: dict[int, float] = field(default_factory=dict[int, float])
    """Bytes of flows that are no more in flight, by flow class."""
    _serial: int = 0
    _moved: Column = field(default_factory=lambda: Column(0.0))
    """Bytes of each flow class at the time in ``_since``."""
    _since: Column = field(default_factory=lambda: Column(0.0))
    _rate: Column = field(default_factory=lambda: Column(0.0))
    _target: Column = field(default_factory=lambda: Column(INF))
    """Bytes of the class at which its next flow lands."""
    _end: Column = field(default_factory=lambda: Column(INF))
    """When that is."""

    def grow(self, n_flow_classes: int) -> None:
        """Make room for flow classes."""
        self._landings.extend([] for _ in range(n_flow_classes - len(self._landings)))
        for column in (self._moved, self._since, self._rate, self._target, self._end):
            column.grow(n_flow_classes)

    def start(self, flow: int, flow_class: int, size_bytes: float, now_s: float) -> None:
        """Add a flow; its flow class keeps its rate until the next change."""
        moved_bytes = self._moved_bytes(flow_class, now_s)
        if moved_bytes > REBASE * size_bytes:
            self._rebase(flow_class, moved_bytes)
            moved_bytes = 0.0
        self._moved.each[flow_class], self._since.each[flow_class] = moved_bytes, now_s
        self._serial += 1
        self._flows[flow] = flow_class, self._serial, size_bytes, moved_bytes
        self.counts[flow_class] = self.counts.get(flow_class, 0) + 1
        landings = self._landings[flow_class]
        heappush(landings, (moved_bytes + size_bytes, self._serial, flow))
        self._target.each[flow_class], self._end.each[flow_class] = landings[0][0], INF

    def stop(self, flow: int, now_s: float) -> int:
        """Take a flow out and return its flow class."""
        flow_class, _, _, began_bytes = self._flows[flow]
        self._take_out(flow, self._moved_bytes(flow_class, now_s) - began_bytes)
        self._aim(flow_class)
        return flow_class

    def landed(self, now_s: float) -> list[tuple[int, int]]:
        """Take out and return the flows that have landed, each with its flow class, in the order in which they started."""
        done: list[tuple[int, int, int]] = []
        if len(self.counts) <= FEW:
            end = self._end.each
            over = [each for each in self.counts if end[each] <= now_s]
        else:
            over = (self._end.all <= now_s).nonzero()[0].tolist()
        for flow_class in over:
            # A flow lands with the tick that is next to its end: with half a tick's bytes left, at most.
            reached = self._moved_bytes(flow_class, now_s) + 0.5 * TICK_S * self._rate.each[flow_class]
            landings = self._landings[flow_class]
            # The first has landed by the clock, whatever round-off says of its bytes.
            reached = max(reached, landings[0][0])
            while landings and landings[0][0] <= reached:
                _, serial, flow = heappop(landings)
                if self._is_in_flight(flow, serial):
                    done.append((serial, flow, flow_class))
                    self._take_out(flow, self._flows[flow][2])
            self._aim(flow_class)
        if len(done) > 1:
            done.sort()
        return [(flow, flow_class) for _, flow, flow_class in done]

    def set_rates(self, flow_classes: Sequence[int] | IntArray, rates: Sequence[float] | FloatArray, now_s: float) -> None:
        """Give flow classes new rates, or the old ones after something started or landed, and foresee when their next flows land."""
        if len(flow_classes) > FEW:
            self._set_many(np.asarray(flow_classes), np.asarray(rates), now_s)
            return
        moved, since, running, target, end = (self._moved.each, self._since.each, self._rate.each, self._target.each, self._end.each)
        for flow_class, rate in zip(flow_classes, rates, strict=True):
            moved_bytes = moved[flow_class] + running[flow_class] * (now_s - since[flow_class])
            moved[flow_class], since[flow_class], running[flow_class] = moved_bytes, now_s, rate if rate < BOUNDLESS else BOUNDLESS
            left_bytes = target[flow_class] - moved_bytes
            # As ``whole_ticks_s``, without a call for each flow class.
            ticks = left_bytes / rate * _PER_SECOND if rate > 0.0 else INF
            if left_bytes <= 0.0:
                end[flow_class] = now_s
            else:
                end[flow_class] = now_s + round(ticks) * TICK_S if ticks < INF else INF

    def next_end_s(self) -> float:
        """Return when the next flow lands at the present rates; infinite when none ever does."""
        if len(self.counts) <= FEW:
            return min(map(self._end.each.__getitem__, self.counts), default=INF)
        return float(self._end.all.min())

    def moved_bytes(self, now_s: float) -> Mapping[int, float]:
        """Return the bytes that all flows of each class have moved so far; those of a flow that has landed are its own to the last."""
        moved_bytes = dict(self._done_bytes)
        for flow_class, _, _, began_bytes in self._flows.values():
            moved_bytes[flow_class] = moved_bytes.get(flow_class, 0.0) + self._moved_bytes(flow_class, now_s) - began_bytes
        return moved_bytes

    def _set_many(self, flow_classes: IntArray, rates: FloatArray, now_s: float) -> None:
        moved, since, running = self._moved.all, self._since.all, self._rate.all
        moved_bytes = moved[flow_classes] + running[flow_classes] * (now_s - since[flow_classes])
        moved[flow_classes], since[flow_classes], running[flow_classes] = moved_bytes, now_s, rates
        left_bytes = np.maximum(self._target.all[flow_classes] - moved_bytes, 0.0)
        if rates.min() > 0.0:
            left_s = left_bytes / rates
        else:
            left_s = np.divide(left_bytes, rates, out=np.where(left_bytes > 0.0, INF, 0.0), where=rates > 0.0)
        self._end.all[flow_classes] = now_s + np.rint(left_s / TICK_S) * TICK_S

    def _moved_bytes(self, flow_class: int, now_s: float) -> float:
        return self._moved.each[flow_class] + self._rate.each[flow_class] * (now_s - self._since.each[flow_class])

    def _rebase(self, flow_class: int, moved_bytes: float) -> None:
        """Count the bytes of a class from now on."""
        landings = self._landings[flow_class]
        self._landings[flow_class] = [(target - moved_bytes, serial, flow) for target, serial, flow in landings]
        for _, serial, flow in landings:
            if self._is_in_flight(flow, serial):
                _, _, size_bytes, began_bytes = self._flows[flow]
                self._flows[flow] = flow_class, serial, size_bytes, began_bytes - moved_bytes

    def _is_in_flight(self, flow: int, serial: int) -> bool:
        found = self._flows.get(flow)
        return found is not None and found[1] == serial

    def _take_out(self, flow: int, moved_bytes: float) -> None:
        flow_class = self._flows.pop(flow)[0]
        self._done_bytes[flow_class] = self._done_bytes.get(flow_class, 0.0) + moved_bytes
        self.counts[flow_class] -= 1
        if self.counts[flow_class] == 0:
            del self.counts[flow_class]
            self._landings[flow_class].clear()
            self._moved.each[flow_class] = self._rate.each[flow_class] = 0.0

    def _aim(self, flow_class: int) -> None:
        """Note what lands next; when that is follows with the rate."""
        landings = self._landings[flow_class]
        while landings and not self._is_in_flight(landings[0][2], landings[0][1]):
            heappop(landings)
        self._target.each[flow_class] = landings[0][0] if landings else INF
        self._end.each[flow_class] = INF
