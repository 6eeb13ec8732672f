"""Memory that tasks hold: how much, of which category, for which technique, and from which task to which.

The same holds give the peak by the order of a schedule and the curve over replayed tasks; see ``docs/theory/memory-over-time.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import fsum, inf
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]

Category = Literal["parameters", "gradients", "optimizer", "activations", "buffers"]
CATEGORIES: Final[tuple[Category, ...]] = ("parameters", "gradients", "optimizer", "activations", "buffers")

MemoryPlace = Literal["accelerator", "host", "server"]
"""Memory of the rank itself, of its node, or of the fullest parameter server."""

TASK_KINDS: Final = ("forward", "backward", "input", "weight", "optimizer", "gather")
"""Tasks that memory depends on: the four kinds of passes, the update, and gathers of sharded parameters."""

PASSES: Final = TASK_KINDS[:4]
INPUT_GRADIENTS: Final = ("backward", "input")

_SAME: Final = 1e-9
"""Shares of a pass that add up to a whole one differ from it by less."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Time over which memory is held, from the start of a task of some kinds to the end of one of others."""

    begin: tuple[str, ...]
    end: tuple[str, ...]
    per: Literal["run", "step", "task", "micro_batch"]
    """From the first to the last of a step; while each runs; or of each micro-batch, growing evenly during one and freed evenly during the
    other."""


ALWAYS: Final = Interval((), (), "run")
FORWARD_TO_BACKWARD: Final = Interval(("forward",), INPUT_GRADIENTS, "micro_batch")
INPUT_TO_WEIGHT: Final = Interval(("input",), ("weight",), "micro_batch")
BACKWARD_PASS: Final = Interval(INPUT_GRADIENTS, INPUT_GRADIENTS, "task")
BACKWARD_TO_REDUCTION: Final = Interval(INPUT_GRADIENTS, (*INPUT_GRADIENTS, "weight"), "step")
GATHER_TO_LAST_PASS: Final = Interval(("gather", *PASSES), PASSES, "step")
UPDATE: Final = Interval(("optimizer",), ("optimizer",), "task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Memory that one rank holds over an interval."""

    category: Category
    owner: str
    """Technique that needs it."""
    bytes: float
    """Size in bytes; that of one micro-batch, where the interval is that of a micro-batch."""
    interval: Interval = ALWAYS
    chunk: int = 0
    """Model chunk of the passes, for an interval of a micro-batch."""
    place: MemoryPlace = "accelerator"


def held_bytes(holds: Iterable[Hold], **of: object) -> float:
    """Return the sum of the holds whose fields are as given.

    Examples
    --------
    >>> weights, moments = (Hold(category=each, owner="update", bytes=4.0) for each in ("parameters", "optimizer"))
    >>> held_bytes([weights, moments]), held_bytes([weights, moments], category="optimizer")
    (8.0, 4.0)
    """
    return fsum(hold.bytes for hold in holds if all(getattr(hold, name) == value for name, value in of.items()))


Slots = tuple[tuple[Interval, int], ...]
"""Intervals, each with the model chunk of its passes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks:
    """Tasks of one rank, or the pieces into which they fall, by start; one entry of each array for each piece."""

    kind: IntArray
    """Place in ``TASK_KINDS``."""
    chunk: IntArray
    step: IntArray
    task: IntArray
    """Number of the task that it is a piece of."""
    start_s: FloatArray
    end_s: FloatArray
    stop_s: float
    """End of the memory curve, which begins at 0."""
    _levels: dict[Slots, tuple[FloatArray, FloatArray]] = field(default_factory=dict[Slots, tuple[FloatArray, FloatArray]])
    """By intervals, what :meth:`levels` returned: many stages have their passes in one order."""

    def levels(self, slots: Slots) -> tuple[FloatArray, FloatArray]:
        """Return moments at which intervals open or close, and how often each is open then; a jump is two entries of one moment."""
        found = self._levels.get(slots)
        if found is None:
            found = self._levels[slots] = _levels(self, slots)
        return found

    def are(self, kinds: tuple[str, ...]) -> Mask:
        """Return which of them are of some kinds."""
        return _chosen(kinds)[self.kind]


@lru_cache
def _chosen(kinds: tuple[str, ...]) -> Mask:
    return np.isin(TASK_KINDS, kinds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOverTime:
    """Memory over time: straight lines between moments."""

    holds: tuple[Hold, ...]
    time_s: FloatArray
    """Ascending; a moment stands there twice where memory jumps."""
    bytes: FloatArray
    """Shape (n_holds, n_moments)."""

    def of(self, category: Category) -> FloatArray:
        """Return the bytes of one category at each moment."""
        return self.bytes[[hold.category == category for hold in self.holds]].sum(axis=0)

    def peak(self) -> tuple[Hold, ...]:
        """Return the holds at the peak, each with all its bytes."""
        sizes: list[float] = self.bytes[:, int(np.argmax(self.bytes.sum(axis=0)))].tolist()
        return tuple(replace(hold, bytes=size) for hold, size in zip(self.holds, sizes, strict=True) if size)


def held_over(holds: Iterable[Hold], tasks: Tasks) -> HeldOverTime:
    """Return the bytes of each hold over the time of some tasks."""
    holds = tuple(hold for hold in holds if hold.bytes)
    slots = {slot: place for place, slot in enumerate(dict.fromkeys((hold.interval, hold.chunk) for hold in holds))}
    time_s, levels = tasks.levels(tuple(slots))
    sizes = np.array([hold.bytes for hold in holds])[:, None] * levels[[slots[hold.interval, hold.chunk] for hold in holds]]
    return HeldOverTime(holds=holds, time_s=time_s, bytes=sizes)


def _levels(tasks: Tasks, slots: Slots) -> tuple[FloatArray, FloatArray]:
    lines = [_level(tasks, *slot) for slot in slots]
    moments_s = np.unique(np.concatenate([[0.0, tasks.stop_s], *(time_s for time_s, _ in lines)]))
    sides = np.array([_sides(*line, moments_s) for line in lines]).reshape(len(lines), 2, len(moments_s))
    jumps = (sides[:, 0] != sides[:, 1]).any(axis=0)
    drawn = np.stack([np.ones_like(jumps), jumps], axis=1).ravel()
    return np.repeat(moments_s, 2)[drawn], sides.transpose(0, 2, 1).reshape(len(lines), 2 * len(moments_s))[:, drawn]


def _level(tasks: Tasks, interval: Interval, chunk: int) -> tuple[FloatArray, FloatArray]:
    """Return moments, and how often an interval is open at each; a jump is two entries of one moment."""
    if interval.per == "run":
        return np.zeros(1), np.ones(1)
    if interval.per == "micro_batch":
        return _in_flight(tasks, interval, chunk)
    start_s, end_s = _windows(tasks, interval)
    edges_s = np.stack([start_s, start_s, end_s, end_s], axis=1)
    return np.append(0.0, edges_s), np.append(0.0, np.tile([0.0, 1.0, 1.0, 0.0], len(start_s)))


def _windows(tasks: Tasks, interval: Interval) -> tuple[FloatArray, FloatArray]:
    """Return starts and ends of the times in which an interval of steps or of tasks is open; none overlap."""
    by = tasks.step if interval.per == "step" else tasks.task
    start_s, end_s = (np.full(by.max(initial=-1) + 1, limit) for limit in (inf, -inf))
    begins, ends = tasks.are(interval.begin), tasks.are(interval.end)
    np.minimum.at(start_s, by[begins], tasks.start_s[begins])
    np.maximum.at(end_s, by[ends], tasks.end_s[ends])
    order = np.flatnonzero(end_s > start_s)
    order = order[np.argsort(start_s[order])]
    start_s, end_s = start_s[order], np.maximum.accumulate(end_s[order])
    apart = start_s[1:] > end_s[:-1]
    return start_s[np.append(True, apart)[: len(order)]], end_s[np.append(apart, True)[: len(order)]]


def _in_flight(tasks: Tasks, interval: Interval, chunk: int) -> tuple[FloatArray, FloatArray]:
    """Return the number of micro-batches in flight through a chunk at the start and end of each piece that changes it."""
    lasted_s = tasks.end_s - tasks.start_s
    whole_s = np.bincount(tasks.task, weights=lasted_s)[tasks.task] if len(lasted_s) else lasted_s
    share = np.divide(lasted_s, whole_s, out=np.ones_like(lasted_s), where=whole_s > 0)
    rows = (tasks.are(interval.begin) | tasks.are(interval.end)) & (tasks.chunk == chunk)
    after = np.cumsum(np.where(tasks.are(interval.begin), share, -share)[rows])
    # What has been put together from shares is whole again.
    after = np.where(np.abs(after - np.rint(after)) < _SAME, np.rint(after), after)
    before = np.append(0.0, after)[: len(after)]
    edges_s = np.stack([tasks.start_s[rows], tasks.end_s[rows]], axis=1)
    return np.append(0.0, edges_s), np.append(0.0, np.stack([before, after], axis=1))


def _sides(time_s: FloatArray, level: FloatArray, moments_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a level before and after each of some moments."""
    first, behind = np.searchsorted(time_s, moments_s), np.searchsorted(time_s, moments_s, side="right")
    known, between = first < behind, np.interp(moments_s, time_s, level)
    before, after = level[np.minimum(first, len(level) - 1)], level[np.maximum(behind - 1, 0)]
    return np.where(known, before, between), np.where(known, after, between)
