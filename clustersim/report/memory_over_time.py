"""Memory over time: which micro-batches, buffers and copies a rank holds while its passes run.

Activations of a micro-batch grow evenly while its forward pass runs, and are freed evenly while its backward pass does: layers are alike.
Where the backward pass falls into two, the first leaves what the second frees.
Beside that a backward pass has working memory from its start to its end; sharded parameters that are gathered, and gradients
before they are reduced, are there while passes run; the copies of the optimizer, while it updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.columns import Columns, columns_of
from clustersim.trace.memory import Curves, MemoryCurve
from clustersim.trace.timeline import PASS_KINDS, Span, Timeline

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]
Window = tuple[float, float]

GATHER_STREAM: Final = "dp_gather"
_FORWARD: Final = PASS_KINDS.index("forward")
_INPUT: Final = PASS_KINDS.index("input")
_WORKING: Final = (PASS_KINDS.index("backward"), _INPUT)
"""Passes that need working memory."""
_SAME: Final = 1e-9
"""Sums in another order differ by less, as a share of the peak."""


class StageHoldings(Protocol):
    """What one rank of a stage holds: always, or while something runs."""

    @property
    def parameters_bytes(self) -> float:
        """Always."""
        ...

    @property
    def gradients_bytes(self) -> float:
        """Always."""
        ...

    @property
    def optimizer_bytes(self) -> float:
        """Always."""
        ...

    @property
    def buffers_bytes(self) -> float:
        """Always."""
        ...

    @property
    def kept_bytes(self) -> tuple[float, ...]:
        """Activations of one micro-batch between its passes, for each chunk."""
        ...

    @property
    def weight_bytes(self) -> tuple[float, ...]:
        """What is left of them between the passes of input and weight gradients."""
        ...

    @property
    def backward_bytes(self) -> float:
        """Activations beside those, while a backward pass or that of an input gradient runs."""
        ...

    @property
    def full_gradients_bytes(self) -> float:
        """Gradients beside those that are always there, from the first backward pass to the last."""
        ...

    @property
    def gathered_bytes(self) -> float:
        """Parameters of other ranks, from the first gather to the end of the last pass."""
        ...

    @property
    def update_bytes(self) -> float:
        """Copies that the optimizer makes, while it updates."""
        ...


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Values at moments, and straight lines between them; before a jump and after it."""

    time_s: FloatArray
    before: FloatArray
    after: FloatArray

    def at(self, moments_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the values before and after each moment."""
        index = np.searchsorted(self.time_s, moments_s)
        last = len(self.time_s) - 1
        known = (index <= last) & (self.time_s[np.minimum(index, last)] == moments_s)
        right, left = np.clip(index, 0, last), np.clip(index - 1, 0, last)
        span_s = self.time_s[right] - self.time_s[left]
        share = np.divide(moments_s - self.time_s[left], span_s, out=np.zeros_like(moments_s), where=span_s > 0)
        between = self.after[left] + np.clip(share, 0.0, 1.0) * (self.before[right] - self.after[left])
        return np.where(known, self.before[right], between), np.where(known, self.after[right], between)


def memory_curves(timeline: Timeline, stages: Sequence[StageHoldings]) -> Curves:
    """Return what a rank of each class holds over the time of the replay.

    Parameters
    ----------
    stages
        What a rank of each pipeline stage holds.
    """
    columns = columns_of(timeline.spans)
    again = columns.repetition
    lanes = [(span.rank_class if span.stream in (COMPUTE_STREAM, GATHER_STREAM) else -1) for span in columns.patterns]
    classes = np.array(lanes, dtype=np.int64)[columns.pattern]
    order = np.lexsort((columns.end_s, columns.start_s, classes))
    bounds: list[int] = np.searchsorted(classes[order], np.arange(len(timeline.rank_classes) + 1)).tolist()
    end_s = timeline.duration_s - (again.added_s if again else 0.0)
    shown = _Shown.of(columns.patterns)
    curves = tuple(
        _curve(index, _Rows.of(columns.taken(order[first:stop]), shown), stages[timeline.rank_classes[index].stage], end_s)
        for index, (first, stop) in enumerate(pairwise(bounds))
    )
    return Curves(curves, again)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shown:
    """What matters here of each pattern of spans."""

    computes: Mask
    kind: IntArray
    """Place in ``PASS_KINDS``; -1 for what is no pass."""
    chunk: IntArray
    updates: Mask

    @classmethod
    def of(cls, patterns: Sequence[Span]) -> _Shown:
        kinds = [PASS_KINDS.index(span.kind) if span.stream == COMPUTE_STREAM and span.kind in PASS_KINDS else -1 for span in patterns]
        return cls(
            computes=np.array([span.stream == COMPUTE_STREAM for span in patterns], dtype=np.bool_),
            kind=np.array(kinds, dtype=np.int64),
            chunk=np.array([max(span.chunk, 0) for span in patterns], dtype=np.int64),
            updates=np.array([span.stream == COMPUTE_STREAM and span.kind == "optimizer" for span in patterns], dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The passes of one class in order, cut only where something lies between two pieces of one, and all that runs on it."""

    columns: Columns
    """Sorted by start."""
    shown: _Shown
    start_s: FloatArray
    end_s: FloatArray
    kind: IntArray
    chunk: IntArray
    step: IntArray
    key: IntArray
    """Step, micro-batch and chunk in one number."""

    @classmethod
    def of(cls, columns: Columns, shown: _Shown) -> _Rows:
        rows = np.flatnonzero((shown.kind[columns.pattern] >= 0) & (columns.micro_batch >= 0))
        start_s, end_s, pattern = columns.start_s[rows], columns.end_s[rows], columns.pattern[rows]
        kind, chunk, step, micro_batch = shown.kind[pattern], shown.chunk[pattern], columns.step[rows], columns.micro_batch[rows]
        key = (step * (1 + micro_batch.max(initial=0)) + micro_batch) * (1 + chunk.max(initial=0)) + chunk
        goes_on = (key[1:] == key[:-1]) & (kind[1:] == kind[:-1]) & (start_s[1:] <= end_s[:-1])
        first = np.flatnonzero(np.concatenate(([True], ~goes_on)))[: len(rows)]
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        return cls(
            columns=columns,
            shown=shown,
            start_s=start_s[first],
            end_s=end_s[last],
            kind=kind[first],
            chunk=chunk[first],
            step=step[first],
            key=key[first],
        )

    def windows(self, rows: Mask) -> list[Window]:
        """Return for each step the time from the start of the first of some passes to the end of the last."""
        steps = np.unique(self.step[rows]).tolist()
        chosen = [rows & (self.step == step) for step in steps]
        return [(float(self.start_s[each].min()), float(self.end_s[each].max())) for each in chosen]


def _curve(rank_class: int, rows: _Rows, held: StageHoldings, duration_s: float) -> MemoryCurve:
    activations, columns = _activations(rows, held), rows.columns
    updating = rows.shown.updates[columns.pattern]
    updates: list[Window] = list(zip(columns.start_s[updating].tolist(), columns.end_s[updating].tolist(), strict=True))
    extra = {
        "gradients": (held.full_gradients_bytes, rows.windows(rows.kind != _FORWARD)),
        "optimizer": (held.update_bytes, updates),
        "buffers": (held.gathered_bytes, _pass_windows(rows)),
    }
    edges_s = [edge for size, windows in extra.values() if size > 0 for window in windows for edge in window]
    moments_s = np.unique(np.concatenate([activations.time_s, np.array([0.0, duration_s, *edges_s], dtype=np.float64)]))
    parts = {name: _during(windows, moments_s, size) for name, (size, windows) in extra.items()} | {
        "activations": activations.at(moments_s)
    }
    always = {
        "parameters": held.parameters_bytes,
        "gradients": held.gradients_bytes,
        "optimizer": held.optimizer_bytes,
        "activations": 0.0,
        "buffers": held.buffers_bytes,
    }
    time_s, sizes = _drawn(moments_s, {name: parts.get(name) for name in always})
    sums = {name: sizes[name] + size for name, size in always.items()}
    total = np.sum(list(sums.values()), axis=0)
    at_s = float(time_s[int(np.argmax(total >= (1.0 - _SAME) * total.max()))])
    again = columns.repetition
    return MemoryCurve(
        rank_class=rank_class,
        time_s=tuple(time_s.tolist()),
        parameters_bytes=tuple(sums["parameters"].tolist()),
        gradients_bytes=tuple(sums["gradients"].tolist()),
        optimizer_bytes=tuple(sums["optimizer"].tolist()),
        activations_bytes=tuple(sums["activations"].tolist()),
        buffers_bytes=tuple(sums["buffers"].tolist()),
        peak_at_s=at_s if again is None else float(again.later_s(np.array([at_s]))[0]),
        peak_during=_running(rows, at_s, n_chunks=len(held.kept_bytes)),
    )


def _activations(rows: _Rows, held: StageHoldings) -> _Pieces:
    """Return what micro-batches keep, and the working memory of backward passes."""
    n_passes, lasted_s = len(rows.start_s), rows.end_s - rows.start_s
    _, same = np.unique(rows.key * len(PASS_KINDS) + rows.kind, return_inverse=True)
    length_s = np.bincount(same, weights=lasted_s)[same] if n_passes else lasted_s
    share = np.divide(lasted_s, length_s, out=np.ones(n_passes), where=length_s > 0)
    changes = np.array([_change_bytes(held, chunk) for chunk in range(len(held.kept_bytes))])
    change = changes[rows.chunk, rows.kind] * share
    closes = (rows.kind != _FORWARD) & (rows.end_s == rows.end_s[_last_of(same)])
    # In flight from the first pass to the last, if that is the one that closes.
    _, keys = np.unique(rows.key, return_inverse=True)
    place, last = np.arange(n_passes), _last_of(keys)
    first = n_passes - 1 - _last_of(keys[::-1])[::-1]
    leaves = closes & (rows.kind != _INPUT) & (place == last)
    in_flight = np.cumsum(first == place) - np.cumsum(leaves)
    # Nothing is nothing, whatever the sums before were rounded to.
    sums, empties = np.cumsum(change), closes & (in_flight == 0)
    base = np.concatenate(([0.0], _latest(empties, sums)))[:n_passes]
    before, after = np.concatenate(([0.0], sums))[:n_passes] - base, sums - base
    works = np.isin(rows.kind, _WORKING)
    working = _latest(closes | works, np.where(closes, 0.0, held.backward_bytes))
    carried = np.concatenate(([0.0], working))[:n_passes]
    running = np.where(works, held.backward_bytes, carried)
    times = np.stack((rows.start_s, rows.start_s, rows.end_s, rows.end_s), axis=1)
    sizes = np.stack((before + carried, before + running, after + running, np.where(empties, 0.0, after)), axis=1)
    there = np.stack((np.ones_like(works), works, np.ones_like(works), closes), axis=1)
    return _pieces(np.append(0.0, times[there]), np.append(0.0, sizes[there]))


def _last_of(same: IntArray) -> IntArray:
    """Return for each row the last one that is the same."""
    last = np.zeros(same.max(initial=-1) + 1, dtype=np.int64)
    last[same] = np.arange(len(same))
    return last[same]


def _latest(rows: Mask, values: FloatArray) -> FloatArray:
    """Return for each row the value of the last of some rows up to it; 0 before the first."""
    latest = np.maximum.accumulate(np.where(rows, np.arange(len(rows)), -1)) if len(rows) else np.zeros(0, dtype=np.int64)
    return np.where(latest >= 0, values[latest], 0.0) if len(rows) else values


def _change_bytes(held: StageHoldings, chunk: int) -> tuple[float, ...]:
    """Return what is kept after a pass of each kind and was not before."""
    kept_bytes, weight_bytes = held.kept_bytes[chunk], held.weight_bytes[chunk]
    changes = {"forward": kept_bytes, "backward": -kept_bytes, "input": weight_bytes - kept_bytes, "weight": -weight_bytes}
    return tuple(changes[kind] for kind in PASS_KINDS)


def _pieces(time_s: FloatArray, values: FloatArray) -> _Pieces:
    moments_s, first = np.unique(time_s, return_index=True)
    last = np.append(first[1:], len(time_s)) - 1
    return _Pieces(moments_s, values[first], values[last])


def _pass_windows(rows: _Rows) -> list[Window]:
    """Return for each step the time from the first gather or pass to the end of the last pass."""
    columns, found = rows.columns, rows.windows(rows.kind >= 0)
    gathers = ~rows.shown.computes[columns.pattern]
    steps: list[int] = np.unique(rows.step).tolist()
    first_s = [float(columns.start_s[gathers & (columns.step == step)].min(initial=inf)) for step in steps]
    return [(min(start_s, gather_s), end_s) for gather_s, (start_s, end_s) in zip(first_s, found, strict=True)]


def _during(windows: Sequence[Window], moments_s: FloatArray, size: float) -> tuple[FloatArray, FloatArray]:
    """Return a size inside windows and nothing outside, before and after each moment; windows may touch."""
    before, after = np.zeros_like(moments_s), np.zeros_like(moments_s)
    if size > 0:
        for start_s, end_s in windows:
            first, last = np.searchsorted(moments_s, [start_s, end_s])
            before[first + 1 : last + 1] = size
            after[first:last] = size
    return before, after


def _drawn(moments_s: FloatArray, parts: dict[str, tuple[FloatArray, FloatArray] | None]) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return the moments, each twice where something jumps, and the values there."""
    both = [np.stack(part, axis=1) for part in parts.values() if part is not None]
    jumps = np.any([part[:, 0] != part[:, 1] for part in both], axis=0)
    shown = np.stack([np.ones_like(jumps), jumps], axis=1).ravel()
    time_s = np.repeat(moments_s, 2)[shown]
    return time_s, {name: np.zeros(len(time_s)) if part is None else np.stack(part, axis=1).ravel()[shown] for name, part in parts.items()}


def _running(rows: _Rows, at_s: float, *, n_chunks: int) -> str:
    """Return what runs at a moment; of two that meet there, the one that begins."""
    columns = rows.columns
    there = rows.shown.computes[columns.pattern] & (columns.start_s <= at_s) & (columns.end_s >= at_s) & (columns.end_s > columns.start_s)
    at = np.flatnonzero(there)
    if not len(at):
        return ""
    row = at[int(np.argmax(columns.start_s[at]))]
    span, number, again = columns.patterns[int(columns.pattern[row])], columns.micro_batch[row : row + 1], columns.repetition
    if number[0] < 0:
        return "optimizer update" if span.kind == "optimizer" else span.name
    if again is not None:
        number = again.renumbered(number, again.times if columns.start_s[row] >= again.end_s else 0)
    chunk = f", chunk {span.chunk}" if n_chunks > 1 else ""
    name = {"input": "input-gradient", "weight": "weight-gradient"}.get(span.kind, span.kind)
    return f"{name} pass of micro-batch {number[0]}{chunk}"
