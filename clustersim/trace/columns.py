"""Spans as columns: repeated values are stored once, and spans are made on access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersim.trace.lazy_sequence import LazySequence
from clustersim.trace.step_log import Repetition
from clustersim.trace.timeline import Span

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanColumns:
    """One row for each span, in no order that means anything."""

    patterns: Sequence[Span]
    """Contents of spans, without time, micro-batch and step."""
    pattern: IntArray
    start_s: FloatArray
    end_s: FloatArray
    micro_batch: IntArray
    step: IntArray
    repetition: Repetition | None = None

    def weights(self) -> FloatArray:
        """Return for each row how often it happened."""
        return np.ones_like(self.start_s) if self.repetition is None else self.repetition.weights(self.start_s)

    def counts(self) -> FloatArray:
        """Return for each pattern how many spans show it."""
        return np.bincount(self.pattern, weights=self.weights(), minlength=len(self.patterns)).astype(np.float64)

    def whole(self) -> SpanColumns:
        """Return all rows, with those that are only repetitions of others."""
        again = self.repetition
        if again is None:
            return self
        inside = np.flatnonzero((self.start_s >= again.start_s) & (self.start_s < again.end_s))
        rows = np.concatenate((np.arange(len(self.start_s)), np.tile(inside, again.times)))
        number = np.concatenate((again.times * (self.start_s >= again.end_s), np.repeat(np.arange(1, again.times + 1), len(inside))))
        shift_s = number * again.period_s
        return SpanColumns(
            patterns=self.patterns,
            pattern=self.pattern[rows],
            start_s=self.start_s[rows] + shift_s,
            end_s=self.end_s[rows] + shift_s,
            micro_batch=again.renumbered(self.micro_batch[rows], number),
            step=self.step[rows] + number * again.n_steps,
        )

    def taken(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> SpanColumns:
        """Return some of the rows."""
        return replace(
            self,
            pattern=self.pattern[rows],
            start_s=self.start_s[rows],
            end_s=self.end_s[rows],
            micro_batch=self.micro_batch[rows],
            step=self.step[rows],
        )

    def sorted(self) -> SpanColumns:
        """Return the rows by rank class, stream, start and end; equal ones stay as they were."""
        lanes = sorted({(each.rank_class, each.stream) for each in self.patterns})
        places = {lane: place for place, lane in enumerate(lanes)}
        lane = np.array([places[each.rank_class, each.stream] for each in self.patterns], dtype=np.int64)
        return self.taken(np.lexsort((self.end_s, self.start_s, lane[self.pattern])))

    def spans(self) -> tuple[Span, ...]:
        """Return the rows that are written down as spans."""
        places: list[int] = self.pattern.tolist()
        shown = [self.patterns[place] for place in places]
        times = zip(self.start_s.tolist(), self.end_s.tolist(), strict=True)
        numbers = zip(self.micro_batch.tolist(), self.step.tolist(), strict=True)
        return tuple(
            replace(span, start_s=start_s, end_s=end_s, micro_batch=micro_batch, step=step)
            for span, (start_s, end_s), (micro_batch, step) in zip(shown, times, numbers, strict=True)
        )


class Spans(LazySequence[Span]):
    """All spans of a timeline, by rank class, stream, start and end."""

    def __init__(self, columns: SpanColumns) -> None:
        """Take the columns as they are."""
        self.columns = columns

    def __len__(self) -> int:
        """Return how many there are, repetitions included."""
        return int(self.columns.weights().sum())

    def make(self) -> tuple[Span, ...]:
        """Return all spans, repetitions included."""
        return self.columns.whole().sorted().spans()

    def within(self, start_s: float, end_s: float) -> tuple[Span, ...]:
        """Return the spans that are in progress at some time between two moments, without making the others."""
        whole = self.columns.whole()
        return whole.taken((whole.start_s < end_s) & (whole.end_s > start_s)).sorted().spans()


def columns_of(spans: Sequence[Span]) -> SpanColumns:
    """Return spans as columns; those of a replay as they were written down, repetitions once."""
    if isinstance(spans, Spans):
        return spans.columns
    return SpanColumns(
        patterns=spans,
        pattern=np.arange(len(spans)),
        start_s=np.array([span.start_s for span in spans], dtype=np.float64),
        end_s=np.array([span.end_s for span in spans], dtype=np.float64),
        micro_batch=np.array([span.micro_batch for span in spans], dtype=np.int64),
        step=np.array([span.step for span in spans], dtype=np.int64),
    )
