"""Drawn part of a step, and hidden communication."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.measure.exposure import busy_intervals, split_by
from clustersim.report.plots.time_scales import (
    BREAK_PX,
    SMALLEST_CELL_PX,
    STEPS_DRAWN,
    TimeScale,
    drawn_part,
    excerpt_of,
    joined,
    marks,
    short_pass_s,
    time_scale,
    whole_step,
)
from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import Span, Timeline
from tests.golden.reference import reference_timeline

WIDTH_PX = 1340.0


def pass_of(start_s: float, end_s: float, *, rank_class: int = 0, micro_batch: int = 0, kind: str = "backward") -> Span:
    return Span(
        rank_class=rank_class,
        stream="compute",
        kind=kind,
        name="B",
        start_s=start_s,
        end_s=end_s,
        micro_batch=micro_batch,
        compute_s=end_s - start_s,
        exposed_s=(("tp", 0.25),),
    )


def test_a_short_step_is_drawn_whole() -> None:
    scale = time_scale(reference_timeline(), WIDTH_PX)

    assert not scale.is_broken
    assert scale.windows == ((0.0, reference_timeline().step_time_s),)
    assert scale.width_s == reference_timeline().step_time_s


@pytest.mark.parametrize("timeline", [reference_timeline(64, 64), Timeline(rank_classes=(), spans=(), step_time_s=0.0)])
def test_a_pipeline_that_is_mostly_filling_and_a_timeline_without_passes_are_drawn_whole(timeline: Timeline) -> None:
    assert time_scale(timeline, WIDTH_PX / 2) == whole_step(timeline)


def test_a_long_step_is_drawn_from_both_ends() -> None:
    timeline = reference_timeline(8, 256)

    scale = time_scale(timeline, WIDTH_PX)

    assert scale.is_broken
    (first_start, first_end), (last_start, last_end) = scale.windows
    assert first_start == 0.0
    assert first_end < last_start
    assert last_end == timeline.step_time_s
    assert short_pass_s(timeline) / scale.width_s * WIDTH_PX >= SMALLEST_CELL_PX
    assert scale.gap_s / scale.width_s * WIDTH_PX == pytest.approx(BREAK_PX, rel=1e-9)


def test_filling_and_draining_the_pipeline_are_never_left_out() -> None:
    timeline = reference_timeline(8, 256)
    passes = [span for span in timeline.spans if span.stream == "compute" and span.micro_batch >= 0]

    (_, first_end), (last_start, _) = time_scale(timeline, WIDTH_PX).windows

    for stage in range(8):
        assert min(span.start_s for span in passes if span.rank_class == stage) < first_end
        assert max(span.end_s for span in passes if span.rank_class == stage) > last_start


def test_a_stretch_over_the_break_appears_on_both_sides() -> None:
    scale = TimeScale(10.0, 2.0, 7.0, 0.5)

    left, right, which = scale.clipped(np.array([1.0, 3.0, 8.0]), np.array([8.0, 6.0, 9.0]))

    # The time after the break follows the gap.
    assert [scale.position(time_s) for time_s in (0.0, 2.0, 7.0, 10.0)] == [0.0, 2.0, 2.5, 5.5]

    assert list(zip(left.tolist(), right.tolist(), which.tolist(), strict=True)) == [(1.0, 2.0, 0), (2.5, 3.5, 0), (3.5, 4.5, 2)]


stretches = st.lists(
    st.tuples(st.floats(min_value=0.0, max_value=10.0), st.floats(min_value=0.01, max_value=5.0)).map(
        lambda pair: (pair[0], pair[0] + pair[1])
    ),
    max_size=12,
)


@given(stretches, st.floats(min_value=0.5, max_value=4.0), st.floats(min_value=5.0, max_value=9.0))
def test_clipping_keeps_the_length_inside_the_windows(times: list[tuple[float, float]], first_end: float, last_start: float) -> None:
    scale = TimeScale(10.0, first_end, last_start, 0.3)
    table = np.array(times, dtype=np.float64).reshape(-1, 2)

    left, right, _ = scale.clipped(table[:, 0], table[:, 1])

    inside = sum(max(0.0, min(end, to) - max(start, at)) for start, end in times for at, to in scale.windows)
    assert float((right - left).sum()) == pytest.approx(inside, rel=1e-9, abs=1e-9)
    assert np.all(right <= scale.width_s + 1e-9)


@given(stretches, st.floats(min_value=0.0, max_value=10.0), st.floats(min_value=0.01, max_value=5.0))
def test_hidden_and_exposed_stretches_make_up_the_span(times: list[tuple[float, float]], start_s: float, length_s: float) -> None:
    busy = busy_intervals([pass_of(start, end) for start, end in times])
    span = pass_of(start_s, start_s + length_s)

    hidden, exposed = split_by(span, busy)

    pieces = sorted(hidden + exposed)
    assert pieces[0][0] == span.start_s
    assert pieces[-1][1] == span.end_s
    assert all(piece[1] == following[0] for piece, following in itertools.pairwise(pieces))
    for start, end in hidden:
        assert np.any((busy[:, 0] <= start) & (end <= busy[:, 1]))
    for start, end in exposed:
        assert not np.any((busy[:, 0] < end) & (start < busy[:, 1]))


def test_busy_intervals_are_disjoint_and_in_order() -> None:
    busy = busy_intervals([pass_of(3.0, 4.0), pass_of(0.0, 1.0), pass_of(0.5, 2.0), pass_of(2.0, 2.5)])

    assert busy.tolist() == [[0.0, 2.5], [3.0, 4.0]]


def test_pieces_of_a_backward_pass_become_one_cell() -> None:
    pieces = [replace(each, hidden_s=(("tp", 0.5),)) for each in (pass_of(0.0, 1.0), pass_of(1.0, 2.0), pass_of(2.0, 2.5))]

    (whole,) = joined(pieces)

    assert (whole.start_s, whole.end_s, whole.compute_s) == (0.0, 2.5, 2.5)
    assert [sum(seconds for _, seconds in pairs) for pairs in (whole.hidden_s, whole.exposed_s)] == [1.5, 0.75]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 3)), min_size=1, max_size=30))
def test_marks_too_close_to_tell_apart_are_as_large_as_what_they_show(stretches: list[tuple[float, float]]) -> None:
    starts_s, lengths_s = np.array(sorted(stretches)).T
    starts_s += np.cumsum(lengths_s) - lengths_s  # none overlaps another

    left, right, share = marks(starts_s, starts_s + lengths_s, 1.0)

    assert (left[1:] - right[:-1] > 2.0).all()
    assert lengths_s.sum() - 1e-9 <= ((right - left) * share).sum() <= lengths_s.sum() + len(left) + 1e-9


def test_passes_that_are_not_pieces_stay_apart() -> None:
    spans = [
        pass_of(0.0, 1.0),
        pass_of(1.5, 2.0),
        pass_of(2.0, 3.0, micro_batch=1),
        pass_of(1.0, 1.5, rank_class=1),
        pass_of(3.0, 4.0, micro_batch=-1, kind="host"),
        pass_of(4.0, 5.0, micro_batch=-1, kind="host"),
    ]

    assert sorted(joined(spans), key=repr) == sorted(spans, key=repr)


def test_short_passes_decide_and_not_the_shortest_piece() -> None:
    timeline = reference_timeline()
    cut = tuple(
        part
        for span in timeline.spans
        for part in (
            [replace(span, end_s=span.start_s + 1e-6), replace(span, start_s=span.start_s + 1e-6)] if span.kind == "backward" else [span]
        )
    )

    assert short_pass_s(replace(timeline, spans=cut)) == pytest.approx(short_pass_s(timeline), rel=1e-9)


def test_of_many_steps_a_few_from_the_middle_are_drawn_and_said() -> None:
    one = reference_timeline()
    steps = [tuple(replace(span, start_s=span.start_s + shift, end_s=span.end_s + shift) for span in one.spans) for shift in shifts(one)]
    log = StepLog(
        n_steps=5,
        step_times_s=(one.step_time_s,) * 5,
        duration_s=5 * one.step_time_s,
        classes=(),
        applied=5,
        staleness=(),
        max_lead=0,
    )
    many = replace(one, spans=tuple(itertools.chain(*steps)), steps=log)

    drawn, excerpt = drawn_part(many), excerpt_of(many)

    assert drawn.step_time_s == pytest.approx(STEPS_DRAWN * one.step_time_s, rel=1e-12)
    assert max(span.end_s for span in drawn.spans) <= drawn.step_time_s
    assert len(drawn.spans) == STEPS_DRAWN * len(one.spans)
    assert drawn_part(one) is one
    assert excerpt_of(one) is None
    assert excerpt is not None
    assert (excerpt.first, excerpt.last, excerpt.n_steps) == (2, 4, 5)
    assert excerpt.start_s == pytest.approx(one.step_time_s, rel=1e-12)
    assert excerpt.text.startswith("steps 2 to 4 of 5, from ")


def test_a_worker_that_has_fallen_behind_is_drawn_in_the_midst_of_its_step() -> None:
    # The second class takes 1.5 times as long: begins together, and is half a step behind where the excerpt begins.
    one = reference_timeline()
    slow = [pass_of(1.5 * number, 1.5 * number + 1.5, rank_class=1) for number in range(6)]
    fast = [pass_of(float(number), number + 1.0) for number in range(9)]
    log = StepLog(n_steps=5, step_times_s=(1.0,) * 5, duration_s=9.0, classes=(), applied=5, staleness=(), max_lead=0)

    drawn = drawn_part(replace(one, spans=(*fast, *slow), steps=log))

    assert [(span.start_s, span.end_s) for span in drawn.spans if span.rank_class == 0] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert [(span.start_s, span.end_s) for span in drawn.spans if span.rank_class == 1] == [(0.0, 0.5), (0.5, 2.0), (2.0, 3.0)]


def shifts(one: Timeline) -> list[float]:
    return [number * one.step_time_s for number in range(5)]
