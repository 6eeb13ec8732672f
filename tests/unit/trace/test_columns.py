"""Rows with a stretch that comes again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.trace.columns import SpanColumns, Spans, columns_of
from clustersim.trace.step_log import Repetition
from clustersim.trace.timeline import Span

AGAIN = Repetition(start_s=1.5, end_s=2.5, times=3, n_micro_batches=1)


def span(start_s: float, micro_batch: int = -1, stream: str = "compute") -> Span:
    return Span(rank_class=0, stream=stream, kind="forward", name="F", start_s=start_s, end_s=start_s + 1.0, micro_batch=micro_batch)


def repeated() -> Spans:
    """Return passes of micro-batches 0 to 3, one a second, of which that of the second from 1.5 s on comes three times more."""
    return Spans(replace(columns_of([span(float(number), number) for number in range(4)]), repetition=AGAIN))


def test_a_stretch_that_comes_again_moves_what_is_behind_it() -> None:
    assert [(each.start_s, each.micro_batch) for each in repeated()] == [(float(number), number) for number in range(7)]


def test_a_repetition_counts_without_being_drawn_out() -> None:
    spans = repeated()

    assert len(spans) == 7
    assert spans.columns.counts().tolist() == [1.0, 1.0, 4.0, 1.0]
    assert len(spans.columns.start_s) == 4


def test_a_repetition_lasts_as_often_as_it_comes() -> None:
    assert (AGAIN.period_s, AGAIN.added_s) == (1.0, 3.0)
    assert AGAIN.later_s(np.array([0.0, 2.0, 2.5])).tolist() == [0.0, 2.0, 5.5]


def test_every_way_through_the_model_leaves_room_for_its_own_micro_batches() -> None:
    again = replace(AGAIN, times=10, n_micro_batches=2, ways=(0, 4))
    labels = np.array([-1, 0, 3, 4, 7])

    assert again.renumbered(labels, 0).tolist() == [-1, 0, 3, 24, 27]
    assert again.renumbered(labels, 10).tolist() == [-1, 20, 23, 44, 47]


@pytest.mark.parametrize(("start_s", "end_s", "found"), [(0.0, 1.0, [0]), (3.5, 4.5, [3, 4]), (6.9, 9.0, [6])])
def test_a_window_shows_what_is_in_progress_in_it(start_s: float, end_s: float, found: list[int]) -> None:
    assert [each.micro_batch for each in repeated().within(start_s, end_s)] == found


def test_spans_are_in_order_of_class_stream_and_time() -> None:
    given = [span(1.0, stream="send"), span(2.0), span(0.5, stream="send"), span(0.0)]

    spans = Spans(columns_of(given))

    assert [(each.stream, each.start_s) for each in spans] == [("compute", 0.0), ("compute", 2.0), ("send", 0.5), ("send", 1.0)]
    assert spans == tuple(sorted(given, key=lambda each: (each.stream, each.start_s)))
    assert spans != tuple(given)


def test_columns_of_a_replay_are_those_that_were_written_down() -> None:
    spans = repeated()

    assert columns_of(spans) is spans.columns


def test_some_rows_keep_what_they_show() -> None:
    columns: SpanColumns = columns_of([span(0.0, 0), span(1.0, 1)])

    assert columns.taken(np.array([1])).spans() == (span(1.0, 1),)
