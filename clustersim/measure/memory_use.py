"""Memory over time: what each rank class holds while the tasks of a replay run; see ``docs/theory/memory-over-time.md``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from clustersim.program.holds import CATEGORIES, PASSES, TASK_KINDS, Hold, IntArray, Mask, Tasks, held_over
from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.columns import SpanColumns, columns_of
from clustersim.trace.memory_curves import Curves, MemoryCurve
from clustersim.trace.timeline import Span, Timeline

GATHER_STREAM: Final = "dp_gather"
GATHER: Final = TASK_KINDS.index("gather")
_SAME: Final = 1e-9
"""Sums in another order differ by less, as a share of the peak."""


def memory_curves(timeline: Timeline, stages: Sequence[Sequence[Hold]]) -> Curves:
    """Return the memory of a rank of each class over the time of the replay.

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
    shown = np.array([(_kind(span), max(span.chunk, 0)) for span in columns.patterns], dtype=np.int64).reshape(-1, 2)
    stop_s = timeline.duration_s - (again.added_s if again else 0.0)
    curves = tuple(
        _curve(index, columns.taken(order[first:stop]), shown, stages[timeline.rank_classes[index].stage], stop_s)
        for index, (first, stop) in enumerate(pairwise(bounds))
    )
    return Curves(curves, again)


def _kind(span: Span) -> int:
    """Return the place of a span among the kinds of tasks that memory depends on; -1 for others."""
    if span.stream != COMPUTE_STREAM:
        return GATHER
    return TASK_KINDS.index(span.kind) if span.kind in TASK_KINDS else -1


def _curve(rank_class: int, columns: SpanColumns, shown: IntArray, holds: Sequence[Hold], stop_s: float) -> MemoryCurve:
    kind, chunk = shown[columns.pattern].T
    tasks = _tasks(columns, kind, chunk, stop_s)
    held = held_over(holds, tasks)
    total = held.bytes.sum(axis=0)
    at_s = float(held.time_s[int(np.argmax(total >= (1.0 - _SAME) * total.max()))])
    again = columns.repetition
    return MemoryCurve(
        rank_class=rank_class,
        time_s=tuple(held.time_s.tolist()),
        **{f"{category}_bytes": tuple(held.of(category).tolist()) for category in CATEGORIES},
        peak_at_s=at_s if again is None else float(again.later_s(np.array([at_s]))[0]),
        peak_during=_running(columns, kind != GATHER, at_s, several_chunks=bool(chunk.any())),
    )


def _tasks(columns: SpanColumns, kind: IntArray, chunk: IntArray, stop_s: float) -> Tasks:
    """Return the tasks of one class, sorted by start; a pass is divided only if another task lies between two pieces."""
    passes = np.flatnonzero((kind >= 0) & (kind < len(PASSES)) & (columns.micro_batch >= 0))
    others = np.flatnonzero(kind >= len(PASSES))
    labels = tuple(each[passes] for each in (columns.step, columns.micro_batch, chunk, kind))
    label = np.ravel_multi_index(labels, tuple(int(each.max(initial=0)) + 1 for each in labels))
    goes_on = (label[1:] == label[:-1]) & (columns.start_s[passes[1:]] <= columns.end_s[passes[:-1]])
    first, last = np.append(True, ~goes_on)[: len(label)], np.append(~goes_on, True)[: len(label)]
    begins, ends = np.append(passes[first], others), np.append(passes[last], others)
    _, task = np.unique(label[first], return_inverse=True)
    return Tasks(
        kind=kind[begins],
        chunk=chunk[begins],
        step=columns.step[begins],
        task=np.append(task, len(task) + np.arange(len(others))),
        start_s=columns.start_s[begins],
        end_s=columns.end_s[ends],
        stop_s=stop_s,
    )


def _running(columns: SpanColumns, computes: Mask, at_s: float, *, several_chunks: bool) -> str:
    """Return the task at a time; of two adjacent tasks, the one that begins."""
    at = np.flatnonzero(computes & (columns.start_s <= at_s) & (columns.end_s >= at_s) & (columns.end_s > columns.start_s))
    if not len(at):
        return ""
    row = at[int(np.argmax(columns.start_s[at]))]
    span, number, again = columns.patterns[int(columns.pattern[row])], columns.micro_batch[row : row + 1], columns.repetition
    if number[0] < 0:
        return "optimizer update" if span.kind == "optimizer" else span.name
    if again is not None:
        number = again.renumbered(number, again.times if columns.start_s[row] >= again.end_s else 0)
    chunk = f", chunk {span.chunk}" if several_chunks else ""
    name = {"input": "input-gradient", "weight": "weight-gradient"}.get(span.kind, span.kind)
    return f"{name} pass of micro-batch {number[0]}{chunk}"
