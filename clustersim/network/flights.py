"""Flows in flight: how far each has got, and when the next one lands."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from clustersim.network.grain import GRAIN_S, grained
from clustersim.topology.cluster import FloatArray, IntArray

INF: Final = float("inf")
ROUND_OFF: Final = 1e-12
"""What lands within this share of the time so far lands now: the difference is round-off."""
REBASE: Final = 1e3
"""What the flows of a kind have moved is counted anew when it is this much more than the bytes of the one that starts."""
FEW: Final = 8
"""Kinds that are dealt with one by one; more are cheaper all together."""
BOUNDLESS: Final = 1e300
"""Bytes per second of what crosses no link: it lands at once, and what never ends can still be counted."""


@dataclass(slots=True)
class Column:
    """One number for each kind, to be had one by one and, in the same memory, all together. The last belongs to no kind."""

    idle: float
    """Of a kind that was never in flight."""
    each: array[float] = field(init=False)
    all: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        """Begin without kinds."""
        self.each = array("d", [self.idle])
        self.all = np.frombuffer(self.each, dtype=np.float64)

    def grow(self, n_kinds: int) -> None:
        """Make room for kinds."""
        self.each = array("d", [*self.each[:-1], *[self.idle] * (n_kinds - len(self.each) + 2)])
        self.all = np.frombuffer(self.each, dtype=np.float64)


@dataclass(slots=True)
class Flights:
    """Bytes and ends of flows by kind.

    All flows of a kind have the same rate, so that one figure says how far each of them has got: the bytes that a flow of the kind
    has moved since the kind was last idle. A flow that starts when that is m bytes lands when it is m and its own bytes.
    """

    in_grains: bool = False
    """Whether flows take multiples of ``GRAIN_S`` at each rate that they have."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Flows in flight of each kind that has any."""
    _flows: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """Kind and turn of each flow in flight."""
    _landings: list[list[tuple[float, int, int]]] = field(default_factory=list[list[tuple[float, int, int]]])
    """For each kind a heap of (bytes of the kind at which it lands, turn, flow), with those that were stopped."""
    _turn: int = 0
    _moved: Column = field(default_factory=lambda: Column(0.0))
    """Bytes of each kind at the time in ``_since``."""
    _since: Column = field(default_factory=lambda: Column(0.0))
    _rate: Column = field(default_factory=lambda: Column(0.0))
    _target: Column = field(default_factory=lambda: Column(INF))
    """Bytes of the kind at which its next flow lands."""
    _end: Column = field(default_factory=lambda: Column(INF))
    """When that is."""

    def grow(self, n_kinds: int) -> None:
        """Make room for kinds."""
        self._landings.extend([] for _ in range(n_kinds - len(self._landings)))
        for column in (self._moved, self._since, self._rate, self._target, self._end):
            column.grow(n_kinds)

    def start(self, flow: int, kind: int, size_bytes: float, now_s: float) -> None:
        """Put a flow in flight; its kind keeps its rate until it is given another."""
        moved_bytes = self._moved_bytes(kind, now_s)
        if moved_bytes > REBASE * size_bytes:
            self._landings[kind] = [(target - moved_bytes, turn, other) for target, turn, other in self._landings[kind]]
            moved_bytes = 0.0
        self._moved.each[kind], self._since.each[kind] = moved_bytes, now_s
        self._turn += 1
        self._flows[flow] = kind, self._turn
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if size_bytes < INF:
            heappush(self._landings[kind], (moved_bytes + size_bytes, self._turn, flow))
        self._aim(kind)

    def stop(self, flow: int) -> int:
        """Take a flow out and return its kind."""
        kind = self._take_out(flow)
        self._aim(kind)
        return kind

    def landed(self, now_s: float) -> list[tuple[int, int]]:
        """Take out and return the flows that have landed, each with its kind, in the order in which they started."""
        done: list[tuple[int, int, int]] = []
        for kind in (self._end.all <= now_s * (1.0 + ROUND_OFF)).nonzero()[0].tolist():
            reached = self._moved_bytes(kind, now_s) + ROUND_OFF * self._rate.each[kind] * now_s
            landings = self._landings[kind]
            # The first has landed by the clock, whatever round-off says of its bytes.
            reached = max(reached, landings[0][0])
            while landings and landings[0][0] <= reached:
                _, turn, flow = heappop(landings)
                if self._flows.get(flow) == (kind, turn):
                    done.append((turn, flow, kind))
                    self._take_out(flow)
            self._aim(kind)
        return [(flow, kind) for _, flow, kind in sorted(done)]

    def set_rates(self, kinds: Sequence[int] | IntArray, rates: Sequence[float] | FloatArray, now_s: float) -> None:
        """Give kinds new rates, or the old ones after something started or landed, and foresee when their next flows land."""
        if len(kinds) > FEW:
            self._set_many(np.asarray(kinds), np.asarray(rates), now_s)
            return
        moved, since, running, target, end = (self._moved.each, self._since.each, self._rate.each, self._target.each, self._end.each)
        for kind, rate in zip(kinds, rates, strict=True):
            moved_bytes = moved[kind] + running[kind] * (now_s - since[kind])
            moved[kind], since[kind], running[kind] = moved_bytes, now_s, min(rate, BOUNDLESS)
            left_bytes = target[kind] - moved_bytes
            if left_bytes <= 0.0:
                end[kind] = now_s
            elif rate <= 0.0 or left_bytes == INF:
                end[kind] = INF
            else:
                end[kind] = now_s + (grained(left_bytes / rate) if self.in_grains else left_bytes / rate)

    def next_end_s(self) -> float:
        """Return when the next flow lands at the present rates; infinite when none ever does."""
        return float(self._end.all.min())

    def _set_many(self, kinds: IntArray, rates: FloatArray, now_s: float) -> None:
        moved, since, running = self._moved.all, self._since.all, self._rate.all
        moved_bytes = moved[kinds] + running[kinds] * (now_s - since[kinds])
        moved[kinds], since[kinds], running[kinds] = moved_bytes, now_s, rates
        left_bytes = np.maximum(self._target.all[kinds] - moved_bytes, 0.0)
        if rates.min() > 0.0:
            left_s = left_bytes / rates
        else:
            left_s = np.divide(left_bytes, rates, out=np.where(left_bytes > 0.0, INF, 0.0), where=rates > 0.0)
        self._end.all[kinds] = now_s + (np.rint(left_s / GRAIN_S) * GRAIN_S if self.in_grains else left_s)

    def _moved_bytes(self, kind: int, now_s: float) -> float:
        return self._moved.each[kind] + self._rate.each[kind] * (now_s - self._since.each[kind])

    def _take_out(self, flow: int) -> int:
        kind, _ = self._flows.pop(flow)
        self.counts[kind] -= 1
        if self.counts[kind] == 0:
            del self.counts[kind]
            self._landings[kind].clear()
            self._moved.each[kind] = self._rate.each[kind] = 0.0
        return kind

    def _aim(self, kind: int) -> None:
        """Note what lands next; when that is follows with the rate."""
        landings = self._landings[kind]
        while landings and self._flows.get(landings[0][2]) != (kind, landings[0][1]):
            heappop(landings)
        self._target.each[kind] = landings[0][0] if landings else INF
        self._end.each[kind] = INF
