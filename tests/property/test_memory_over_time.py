"""Memory over time against a count of what is in flight at every moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.measure.memory_use import memory_curves
from clustersim.program.holds import (
    ALWAYS,
    BACKWARD_PASS,
    BACKWARD_TO_REDUCTION,
    FORWARD_TO_BACKWARD,
    GATHER_TO_LAST_PASS,
    UPDATE,
    Category,
    Hold,
    Interval,
)
from clustersim.trace.timeline import RankClass, Span, Timeline

KEPT_BYTES, WORKING_BYTES = (8.0, 3.0), 2.0
SIZES: tuple[tuple[Category, float, Interval, int], ...] = (
    ("parameters", 10.0, ALWAYS, 0),
    ("gradients", 20.0, ALWAYS, 0),
    ("optimizer", 30.0, ALWAYS, 0),
    ("buffers", 5.0, ALWAYS, 0),
    ("activations", KEPT_BYTES[0], FORWARD_TO_BACKWARD, 0),
    ("activations", KEPT_BYTES[1], FORWARD_TO_BACKWARD, 1),
    ("activations", WORKING_BYTES, BACKWARD_PASS, 0),
    ("gradients", 7.0, BACKWARD_TO_REDUCTION, 0),
    ("buffers", 4.0, GATHER_TO_LAST_PASS, 0),
    ("optimizer", 9.0, UPDATE, 0),
)
HELD = [Hold(category=category, owner="test", bytes=size, interval=interval, chunk=chunk) for category, size, interval, chunk in SIZES]


@st.composite
def schedules(draw: st.DrawFn) -> list[Span]:
    """Return passes of some micro-batches and chunks, each in pieces, with pauses; no backward pass before its forward pass."""
    waiting = {(micro_batch, chunk): ["forward", "backward"] for micro_batch in range(draw(st.integers(1, 4))) for chunk in range(2)}
    spans: list[Span] = []
    at_s = 0.0
    while waiting:
        key = draw(st.sampled_from(sorted(waiting)))
        kind = waiting[key].pop(0)
        if not waiting[key]:
            del waiting[key]
        for _ in range(draw(st.integers(1, 3))):
            at_s += draw(st.sampled_from([0.0, 0.0, 0.25]))
            length_s = draw(st.sampled_from([0.5, 1.0, 3.0]))
            spans.append(
                Span(
                    rank_class=0,
                    stream="compute",
                    kind=kind,
                    name=kind,
                    start_s=at_s,
                    end_s=at_s + length_s,
                    micro_batch=key[0],
                    chunk=key[1],
                )
            )
            at_s += length_s
    return spans


def in_flight(spans: list[Span], at_s: float) -> float:
    """Return the activations at a moment inside a pass or a pause, counted pass by pass."""
    total = 0.0
    keys = sorted({(span.micro_batch, span.chunk) for span in spans})
    for key in keys:
        for kind, sign in (("forward", 1.0), ("backward", -1.0)):
            pieces = [span for span in spans if (span.micro_batch, span.chunk) == key and span.kind == kind]
            done_s = sum(min(max(at_s - span.start_s, 0.0), span.end_s - span.start_s) for span in pieces)
            total += sign * KEPT_BYTES[key[1]] * done_s / sum(span.end_s - span.start_s for span in pieces)
    ends = [[span for span in spans if span.kind == "backward" and (span.micro_batch, span.chunk) == key] for key in keys]
    return total + (WORKING_BYTES if any(pieces[0].start_s < at_s < pieces[-1].end_s for pieces in ends) else 0.0)


@given(schedules(), st.floats(0.01, 0.99))
def test_what_is_held_is_what_is_in_flight(spans: list[Span], place: float) -> None:
    end_s = spans[-1].end_s + 1.0
    timeline = Timeline(
        rank_classes=(RankClass(name="x", stage=0, representative_rank=0, ranks=np.arange(1)),), spans=tuple(spans), step_time_s=end_s
    )

    (curve,) = memory_curves(timeline, [HELD])

    # Between two moments everything goes straight.
    for first, (start_s, stop_s) in enumerate(zip(curve.time_s, curve.time_s[1:], strict=False)):
        at_s = start_s + place * (stop_s - start_s)
        if start_s < at_s < stop_s:
            drawn = curve.activations_bytes[first] + place * (curve.activations_bytes[first + 1] - curve.activations_bytes[first])
            assert drawn == pytest.approx(in_flight(spans, at_s), abs=1e-9)
    backward = [span for span in spans if span.kind == "backward"]
    assert max(curve.gradients_bytes) == 27.0
    assert min(at for at, size in zip(curve.time_s, curve.gradients_bytes, strict=True) if size > 20.0) == backward[0].start_s
    assert curve.total_bytes[-1] == 65.0
    assert min(curve.activations_bytes) >= -1e-9


@given(schedules())
def test_the_peak_is_the_most_and_reached_where_it_is_said_to_be(spans: list[Span]) -> None:
    timeline = Timeline(
        rank_classes=(RankClass(name="x", stage=0, representative_rank=0, ranks=np.arange(1)),),
        spans=tuple(spans),
        step_time_s=spans[-1].end_s,
    )

    (curve,) = memory_curves(timeline, [HELD])

    at_peak = [size for at, size in zip(curve.time_s, curve.total_bytes, strict=True) if at == curve.peak_at_s]
    assert max(at_peak) == pytest.approx(max(curve.total_bytes), rel=1e-9)
    assert all(
        size < curve.peak_bytes * (1 - 1e-9) for at, size in zip(curve.time_s, curve.total_bytes, strict=True) if at < curve.peak_at_s
    )
    running = [span for span in spans if span.start_s <= curve.peak_at_s <= span.end_s]
    assert any(curve.peak_during.startswith(f"{span.kind} pass of micro-batch {span.micro_batch}") for span in running)
