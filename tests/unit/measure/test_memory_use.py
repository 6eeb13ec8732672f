"""Memory of a rank over time, on timelines that fit on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clustersim.measure.memory_use import memory_curves
from clustersim.program.holds import (
    ALWAYS,
    BACKWARD_PASS,
    FORWARD_TO_BACKWARD,
    GATHER_TO_LAST_PASS,
    INPUT_TO_WEIGHT,
    UPDATE,
    Category,
    Hold,
    Interval,
)
from clustersim.trace.memory_curves import MemoryCurve
from clustersim.trace.timeline import RankClass, Span, Timeline
from tests.golden.reference import reference_timeline


def hold(category: Category, size: float, interval: Interval = ALWAYS, chunk: int = 0) -> Hold:
    return Hold(category=category, owner="test", bytes=size, interval=interval, chunk=chunk)


STATE = (hold("parameters", 10.0), hold("gradients", 20.0), hold("optimizer", 30.0), hold("buffers", 5.0))
KEPT = hold("activations", 8.0, FORWARD_TO_BACKWARD)
WORKING = hold("activations", 2.0, BACKWARD_PASS)


def span(kind: str, start_s: float, end_s: float, micro_batch: int = 0, **more: object) -> Span:
    fields: dict[str, object] = {"rank_class": 0, "stream": "compute", "name": kind[0].upper(), "chunk": 0, **more}
    return Span(kind=kind, start_s=start_s, end_s=end_s, micro_batch=micro_batch, **fields)  # pyright: ignore[reportArgumentType] - of a test


def curve_of(*spans: Span, kept: Hold = KEPT, more: Sequence[Hold] = (), step_time_s: float = 10.0) -> MemoryCurve:
    timeline = Timeline(
        rank_classes=(RankClass(name="stage 0", stage=0, representative_rank=0, ranks=np.arange(1)),), spans=spans, step_time_s=step_time_s
    )
    return memory_curves(timeline, [(*STATE, kept, *more)])[0]


def points(curve: MemoryCurve, name: str) -> list[tuple[float, float]]:
    return list(zip(curve.time_s, getattr(curve, f"{name}_bytes"), strict=True))


def test_a_rank_without_passes_holds_the_same_all_the_time() -> None:
    curve = curve_of()

    assert curve.time_s == (0.0, 10.0)
    assert curve.total_bytes == (65.0, 65.0)
    assert (curve.peak_at_s, curve.peak_during) == (0.0, "")


def test_a_backward_pass_has_working_memory_from_its_start_to_its_end() -> None:
    curve = curve_of(span("forward", 0, 1), span("backward", 1, 3), more=[WORKING])

    assert points(curve, "activations") == [(0, 0), (1, 8), (1, 10), (3, 2), (3, 0), (10, 0)]
    assert (curve.peak_bytes, curve.peak_at_s, curve.peak_during) == (75.0, 1.0, "backward pass of micro-batch 0")


def test_an_input_gradient_leaves_what_the_weight_gradient_frees() -> None:
    later = hold("activations", 3.0, INPUT_TO_WEIGHT)

    curve = curve_of(span("forward", 0, 1), span("input", 1, 2), span("weight", 4, 6), more=[later, WORKING])

    assert points(curve, "activations") == [(0, 0), (1, 8), (1, 10), (2, 5), (2, 3), (4, 3), (6, 0), (10, 0)]
    assert curve.peak_during == "input-gradient pass of micro-batch 0"


def test_chunks_keep_what_each_of_them_does() -> None:
    second = hold("activations", 3.0, FORWARD_TO_BACKWARD, chunk=1)

    curve = curve_of(span("forward", 0, 1), span("forward", 1, 2, chunk=1), span("backward", 2, 3, chunk=1), more=[second])

    assert points(curve, "activations") == [(0, 0), (1, 8), (2, 11), (3, 8), (10, 8)]
    assert curve.peak_during == "backward pass of micro-batch 0, chunk 1"


def test_gathered_parameters_are_there_from_the_first_gather_to_the_last_pass() -> None:
    gather = span("communication", 0.5, 1, stream="dp_gather", dimension="dp")

    curve = curve_of(gather, span("forward", 1, 2), span("backward", 2, 4), more=[hold("buffers", 4.0, GATHER_TO_LAST_PASS)])

    assert points(curve, "buffers") == [(0, 5), (0.5, 5), (0.5, 9), (1, 9), (2, 9), (4, 9), (4, 5), (10, 5)]


def test_the_optimizer_copies_while_it_updates() -> None:
    curve = curve_of(
        span("forward", 0, 1), span("backward", 1, 2), span("optimizer", 6, 7, -1, name="optimizer"), more=[hold("optimizer", 50.0, UPDATE)]
    )

    assert points(curve, "optimizer")[-5:] == [(6, 30), (6, 80), (7, 80), (7, 30), (10, 30)]
    assert (curve.peak_bytes, curve.peak_at_s, curve.peak_during) == (115.0, 6.0, "optimizer update")


def test_steps_do_not_mix_their_micro_batches() -> None:
    spans = [
        span(kind, start + shift, start + shift + 1, step=step)
        for step, shift in ((0, 0), (1, 4))
        for kind, start in (("forward", 0), ("backward", 1))
    ]

    curve = curve_of(*spans, more=[hold("buffers", 4.0, GATHER_TO_LAST_PASS)])

    assert [size for _, size in points(curve, "activations") if size == 8.0] == [8.0, 8.0]
    assert [at for at, size in points(curve, "buffers") if size == 9.0] == [0, 1, 2, 4, 5, 6]


def test_nothing_is_left_of_many_micro_batches() -> None:
    spans = [
        span(kind, 2 * index + late, 2 * index + late + 1, index)
        for index in range(1000)
        for late, kind in enumerate(("forward", "backward"))
    ]

    curve = curve_of(*spans, kept=replace(KEPT, bytes=0.1), step_time_s=2000.0)

    assert curve.activations_bytes[-1] == 0.0


def test_a_pass_of_no_length_keeps_what_it_keeps() -> None:
    curve = curve_of(span("forward", 1, 1), span("backward", 2, 4))

    assert points(curve, "activations") == [(0, 0), (1, 0), (1, 8), (2, 8), (4, 0), (10, 0)]


def test_a_pass_that_never_goes_back_keeps_its_activations() -> None:
    assert curve_of(span("forward", 1, 2)).activations_bytes[-1] == 8.0


def test_moments_ascend_and_every_part_has_a_value_for_each() -> None:
    for curve in reference_timeline(4, 8, 2).memory:
        assert list(curve.time_s) == sorted(curve.time_s)
        assert (curve.time_s[0], curve.time_s[-1]) == (0.0, reference_timeline(4, 8, 2).step_time_s)
        assert {len(curve.total_bytes), len(curve.buffers_bytes)} == {len(curve.time_s)}
