"""The picture of where the step goes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

from clustersim.measure.metrics import ByDimension, Metrics
from clustersim.report.palette import IDLE
from clustersim.report.plots.breakdown import segments_of, spread, step_breakdown
from clustersim.report.plots.canvas import style, title_of
from clustersim.report.shares import step_shares
from clustersim.trace.timeline import Timeline
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def drawn(metrics: Metrics = METRICS, timeline: Timeline = TIMELINE) -> Axes:
    with style():
        return step_breakdown(metrics, timeline)


def test_segments_make_up_the_step_with_computation_divided_by_kind_of_pass() -> None:
    segments = segments_of(step_shares(METRICS), TIMELINE)
    sizes = {segment.label: segment.end_s - segment.start_s for segment in segments}
    percents = {segment.label: segment.percent for segment in segments}
    passes = ("forward", "backward", "recomputation")

    assert (segments[0].start_s, segments[-1].end_s) == (0.0, pytest.approx(METRICS.step_time_s, rel=1e-9))
    assert all(before.end_s == after.start_s for before, after in itertools.pairwise(segments))
    # Eight micro-batches of 8.4 ms forward, 14.8 ms backward and 2 ms recomputation.
    assert [sizes[name] for name in passes] == pytest.approx([8 * 8.4e-3, 8 * 14.8e-3, 8 * 2e-3], rel=1e-9)
    percents["compute"] = round(math.fsum(percents.pop(name) for name in passes), 9)
    assert percents == {share.label: share.percent for share in step_shares(METRICS)}


def test_without_passes_computation_is_one_segment() -> None:
    labels = [segment.label for segment in segments_of(step_shares(METRICS), replace(TIMELINE, spans=()))]

    assert labels[0] == "compute"


def test_every_segment_is_labelled() -> None:
    texts = " / ".join(text.get_text().replace("\n", " ") for text in drawn().texts)

    for segment in segments_of(step_shares(METRICS), TIMELINE):
        assert f"{segment.label} {segment.percent:.1f} %" in texts


def test_what_cannot_be_seen_has_no_label() -> None:
    breakdown = replace(METRICS.breakdown_s, host=1e-5 * METRICS.step_time_s)

    texts = [text.get_text() for text in drawn(replace(METRICS, breakdown_s=breakdown)).texts]

    assert not any("0.0 %" in text or text.startswith("host") for text in texts)


def test_a_narrow_segment_has_its_words_below_each_other() -> None:
    breakdown = replace(METRICS.breakdown_s, bubble=0.06 * METRICS.step_time_s)

    texts = [text.get_text() for text in drawn(replace(METRICS, breakdown_s=breakdown)).texts]

    assert any(text.startswith("pipeline\nbubble\n") for text in texts)


def test_waiting_is_hatched_and_idle_grey() -> None:
    hatched = [artist for artist in drawn().collections if artist.get_hatch()]

    assert len(hatched) == 1
    assert [segment.colour for segment in segments_of(step_shares(METRICS), TIMELINE) if segment.idle] == [IDLE]


def test_hidden_communication_is_listed_beside() -> None:
    assert any("overlapped with computation: PP 2.62 ms, DP 10 ms" in text.get_text() for text in drawn().texts)
    none = replace(METRICS, overlapped_communication_s=ByDimension())
    assert any(text.get_text() == "no communication is overlapped with computation" for text in drawn(none).texts)


def test_hidden_communication_longer_than_the_step_stays_inside() -> None:
    ax = drawn(replace(METRICS, overlapped_communication_s=ByDimension(tp=10.0, dp=10.0)))

    for artist in ax.collections:
        for path in artist.get_paths():
            assert path.get_extents().x1 <= METRICS.step_time_s * (1 + 1e-9)


def test_the_title_states_the_finding() -> None:
    assert title_of(drawn(replace(METRICS, memory=replace(METRICS.memory, fits=False)))).endswith("; does not fit in memory")
    assert title_of(drawn()) == ("reference, 512 GPUs: 57.3 % of the step computes; the largest loss is the pipeline bubble (26.9 %)")


@given(st.lists(st.tuples(st.floats(min_value=0.0, max_value=1000.0), st.floats(min_value=20.0, max_value=90.0)), max_size=8))
def test_spread_labels_neither_overlap_nor_leave_the_room(labels: list[tuple[float, float]]) -> None:
    wanted = sorted(place for place, _ in labels)
    widths = [width for _, width in labels]

    assert spread([100.0, 500.0], [50.0, 50.0], 1000.0) == [100.0, 500.0]
    places = spread(wanted, widths, 1000.0)

    # Eight labels of at most 90 px and the gaps between them need less than the thousand there are.
    edges = [(place - width / 2, place + width / 2) for place, width in zip(places, widths, strict=True)]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(edges))
    assert all(left >= -1e-6 and right <= 1000.0 + 1e-6 for left, right in edges)
