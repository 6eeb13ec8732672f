"""Memory over time on replayed steps: its peak is the sum by category, and activations in flight are those of the closed forms."""

from __future__ import annotations

import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.documents.text import Data
from clustersim.program.holds import BACKWARD_PASS, FORWARD_TO_BACKWARD
from clustersim.trace.memory_curves import MemoryCurve
from tests.unit.config.samples import small
from tests.unit.parallel.factories import held


def curve_of_stage(result: Result, stage: int) -> MemoryCurve:
    return next(curve for curve in result.spans.memory if result.spans.rank_classes[curve.rank_class].stage == stage)


def check_memory(result: Result) -> None:
    for stage in result.metrics.memory.by_stage:
        curve = curve_of_stage(result, stage.stage)
        at = curve.total_bytes.index(max(curve.total_bytes))
        # Sums in another order: round-off.
        assert curve.peak_bytes == pytest.approx(stage.peak_bytes, rel=1e-9)
        assert curve.activations_bytes[at] == pytest.approx(stage.activations_bytes, rel=1e-9)
        assert curve.optimizer_bytes[at] == pytest.approx(stage.optimizer_bytes, rel=1e-9)
        assert (stage.peak_at_s, stage.peak_during) == (curve.peak_at_s, curve.peak_during)
        assert stage.peak_during


@pytest.mark.parametrize(("schedule", "in_flight"), [("naive", [1, 1, 1, 1]), ("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])])
def test_stages_hold_as_many_micro_batches_as_the_schedule_keeps_in_flight(schedule: str, in_flight: list[int]) -> None:
    training: Data = {"global_batch_size": 16, "micro_batch_size": 1, "precision": "bf16"}

    result = run(small(strategy={"tp": 2, "pp": 4, "schedule": schedule}, training=training))

    for stage, expected in enumerate(in_flight):
        kept, working = (held(result.built.plan, stage, interval=interval) for interval in (FORWARD_TO_BACKWARD, BACKWARD_PASS))
        assert max(curve_of_stage(result, stage).activations_bytes) == pytest.approx(expected * kept + working, rel=1e-9)


def test_one_forward_one_backward_first_holds_most_when_the_pipeline_is_full() -> None:
    result = run(small(strategy={"tp": 2, "pp": 4}))

    first = [stage.peak_during for stage in result.metrics.memory.by_stage]

    # Stage i has 4 - i micro-batches in flight, numbered from 0: the last of them fills it.
    assert [during.rpartition(" ")[2] for during in first if during and during.startswith("forward")] == ["3", "2", "1"]


def test_the_mean_over_time_is_below_the_peak_and_above_what_is_always_held() -> None:
    curve = curve_of_stage(run(small(strategy={"tp": 2, "pp": 2})), 0)
    always = curve.parameters_bytes[0] + curve.gradients_bytes[0] + curve.optimizer_bytes[0] + curve.buffers_bytes[0]

    areas = [
        (stop - start) * (low + high) / 2
        for start, stop, low, high in zip(curve.time_s, curve.time_s[1:], curve.total_bytes, curve.total_bytes[1:], strict=False)
    ]

    assert always < sum(areas) / curve.time_s[-1] < curve.peak_bytes
