"""Memory over time: which micro-batches, buffers and copies a rank holds while its passes run.

Activations of a micro-batch grow evenly while its forward pass runs, and are freed evenly while its backward pass does: layers are alike.
Where the backward pass falls into two, the first leaves what the second frees.
Beside that a backward pass has working memory from its start to its end; sharded parameters that are gathered, and gradients
before they are reduced, are there while passes run; the copies of the optimizer, while it updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.memory import MemoryCurve
from clustersim.trace.timeline import PASS_KINDS, Span, Timeline

FloatArray = NDArray[np.float64]
Window = tuple[float, float]
PassKey = tuple[int, int, int]
"""Step, micro-batch and chunk."""

GATHER_STREAM: Final = "dp_gather"
_WORKING: Final = ("backward", "input")
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


def memory_curves(timeline: Timeline, stages: Sequence[StageHoldings]) -> tuple[MemoryCurve, ...]:
    """Return what a rank of each class holds over the time of the replay.

    Parameters
    ----------
    stages
        What a rank of each pipeline stage holds.
    """
    by_class: list[list[Span]] = [[] for _ in timeline.rank_classes]
    for span in timeline.spans:
        if span.stream in (COMPUTE_STREAM, GATHER_STREAM):
            by_class[span.rank_class].append(span)
    return tuple(
        _curve(index, sorted(spans, key=lambda span: (span.start_s, span.end_s)), stages[rank_class.stage], timeline.duration_s)
        for index, (rank_class, spans) in enumerate(zip(timeline.rank_classes, by_class, strict=True))
    )


def _curve(rank_class: int, spans: Sequence[Span], held: StageHoldings, duration_s: float) -> MemoryCurve:
    computing = [span for span in spans if span.stream == COMPUTE_STREAM]
    passes = _joined(span for span in computing if span.kind in PASS_KINDS and span.micro_batch >= 0)
    activations = _activations(passes, held)
    updates = [(span.start_s, span.end_s) for span in computing if span.kind == "optimizer"]
    extra = {
        "gradients": (held.full_gradients_bytes, _backward_windows(passes)),
        "optimizer": (held.update_bytes, updates),
        "buffers": (held.gathered_bytes, _pass_windows(spans, passes)),
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
    columns = {name: sizes[name] + size for name, size in always.items()}
    total = np.sum(list(columns.values()), axis=0)
    at_s = float(time_s[int(np.argmax(total >= (1.0 - _SAME) * total.max()))])
    return MemoryCurve(
        rank_class=rank_class,
        time_s=tuple(time_s.tolist()),
        parameters_bytes=tuple(columns["parameters"].tolist()),
        gradients_bytes=tuple(columns["gradients"].tolist()),
        optimizer_bytes=tuple(columns["optimizer"].tolist()),
        activations_bytes=tuple(columns["activations"].tolist()),
        buffers_bytes=tuple(columns["buffers"].tolist()),
        peak_at_s=at_s,
        peak_during=_running(computing, at_s, n_chunks=len(held.kept_bytes)),
    )


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return passes in order, cut only where something lies between two pieces of one."""
    pieces: list[Span] = []
    for span in spans:
        last = pieces[-1] if pieces else None
        if last and (_key(last), last.kind) == (_key(span), span.kind) and span.start_s <= last.end_s:
            pieces[-1] = replace(last, end_s=span.end_s)
        else:
            pieces.append(span)
    return pieces


def _key(span: Span) -> PassKey:
    return span.step, span.micro_batch, max(span.chunk, 0)


def _activations(passes: Sequence[Span], held: StageHoldings) -> _Pieces:
    """Return what micro-batches keep, and the working memory of backward passes."""
    length_s: defaultdict[tuple[PassKey, str], float] = defaultdict(float)
    last_end_s: dict[tuple[PassKey, str], float] = {}
    for span in passes:
        length_s[_key(span), span.kind] += span.end_s - span.start_s
        last_end_s[_key(span), span.kind] = span.end_s
    done_s: defaultdict[tuple[PassKey, str], float] = defaultdict(float)
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    in_flight: dict[PassKey, None] = {}
    kept = working = 0.0
    for span in passes:
        key, kind = _key(span), span.kind
        points.append((span.start_s, kept + working))
        if kind in _WORKING:
            working = held.backward_bytes
            points.append((span.start_s, kept + working))
        before_s = done_s[key, kind]
        done_s[key, kind] = before_s + span.end_s - span.start_s
        share = (done_s[key, kind] - before_s) / length_s[key, kind] if length_s[key, kind] > 0 else 1.0
        kept += _change_bytes(held, kind, key[2]) * share
        in_flight[key] = None
        points.append((span.end_s, kept + working))
        if kind == "forward" or span.end_s != last_end_s[key, kind]:
            continue
        if kind != "input":
            del in_flight[key]
        # Nothing is nothing, whatever the sums before were rounded to.
        kept, working = kept if in_flight else 0.0, 0.0
        points.append((span.end_s, kept))
    return _pieces(points)


def _change_bytes(held: StageHoldings, kind: str, chunk: int) -> float:
    """Return what is kept after a pass and was not before."""
    kept_bytes, weight_bytes = held.kept_bytes[chunk], held.weight_bytes[chunk]
    changes = {"forward": kept_bytes, "backward": -kept_bytes, "input": weight_bytes - kept_bytes, "weight": -weight_bytes}
    return changes[kind]


def _pieces(points: Sequence[tuple[float, float]]) -> _Pieces:
    time_s, values = np.array(points, dtype=np.float64).T
    moments_s, first = np.unique(time_s, return_index=True)
    last = np.append(first[1:], len(time_s)) - 1
    return _Pieces(moments_s, values[first], values[last])


def _backward_windows(passes: Sequence[Span]) -> list[Window]:
    """Return for each step the time from the first backward pass to the end of the last."""
    return list(_by_step(span for span in passes if span.kind != "forward"))


def _pass_windows(spans: Sequence[Span], passes: Sequence[Span]) -> list[Window]:
    """Return for each step the time from the first gather or pass to the end of the last pass."""
    gathers: dict[int, float] = {}
    for span in spans:
        if span.stream == GATHER_STREAM:
            gathers.setdefault(span.step, span.start_s)
    steps = dict.fromkeys(span.step for span in passes)
    windows = zip(steps, _by_step(passes), strict=True)
    return [(min(start_s, gathers.get(step, start_s)), end_s) for step, (start_s, end_s) in windows]


def _by_step(passes: Iterable[Span]) -> Iterator[Window]:
    found: dict[int, Window] = {}
    for span in passes:
        start_s, end_s = found.get(span.step, (span.start_s, span.end_s))
        found[span.step] = (min(start_s, span.start_s), max(end_s, span.end_s))
    yield from found.values()


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


def _running(computing: Sequence[Span], at_s: float, *, n_chunks: int) -> str:
    """Return what runs at a moment; of two that meet there, the one that begins."""
    at = [span for span in computing if span.start_s <= at_s <= span.end_s and span.end_s > span.start_s]
    if not at:
        return ""
    span = max(at, key=lambda span: span.start_s)
    if span.micro_batch < 0:
        return "optimizer update" if span.kind == "optimizer" else span.name
    chunk = f", chunk {span.chunk}" if n_chunks > 1 else ""
    name = {"input": "input-gradient", "weight": "weight-gradient"}.get(span.kind, span.kind)
    return f"{name} pass of micro-batch {span.micro_batch}{chunk}"
