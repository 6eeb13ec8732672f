"""The bottleneck of a step, in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.measure.metrics import Breakdown, ByDimension, Metrics
from clustersim.report.shares import LOSSES, PART_LABELS, Bottleneck, find_bottleneck
from tests.golden.reference import reference_metrics, reference_timeline

REFERENCE = reference_metrics(reference_timeline())


def metrics_with(**seconds: float) -> Metrics:
    """Return metrics of a step that consists of the given parts and nothing else."""
    dimensions = {name: seconds.pop(name) for name in list(seconds) if name in {"tp", "pp", "dp", "ep", "cp", "ps", "offload"}}
    parts = {"compute": 0.0, "bubble": 0.0, "stall": 0.0, "optimizer": 0.0, "host": 0.0} | seconds
    breakdown = Breakdown(exposed_communication=ByDimension(**dimensions), **parts)
    return replace(REFERENCE, breakdown_s=breakdown, step_time_s=sum(parts.values()) + sum(dimensions.values()))


def found_in(metrics: Metrics) -> Bottleneck:
    """Return the bottleneck of a step in which nothing is recomputed."""
    return find_bottleneck(metrics, replace(reference_timeline(), spans=()))


def test_recomputation_is_a_loss() -> None:
    timeline = reference_timeline()
    spans = tuple(replace(span, recompute_s=0.3 * span.compute_s) for span in timeline.spans)

    found = find_bottleneck(metrics_with(compute=4.0, tp=1.0), replace(timeline, spans=spans))

    assert (found.loss, found.loss_percent) == ("recompute", 24.0)
    assert found.sentence == "Step time is bound by computation: 80.0 % of it. The largest loss is recomputation: 24.0 %."


def test_every_part_but_computation_has_a_name() -> None:
    assert set(LOSSES) == {*PART_LABELS, "recompute"} - {"compute"}


@pytest.mark.parametrize("part", [part for part in LOSSES if part != "recompute"])
def test_the_largest_loss_is_named_and_once(part: str) -> None:
    small, large = found_in(metrics_with(compute=4.0, **{part: 1.0})), found_in(metrics_with(compute=1.0, **{part: 3.0}))

    assert (small.part, small.loss, small.fraction) == ("compute", part, pytest.approx(0.8, rel=1e-12))
    assert small.sentence == f"Step time is bound by computation: 80.0 % of it. The largest loss is {LOSSES[part]}: 20.0 %."
    assert (large.part, large.loss) == (part, part)
    assert large.sentence == f"Step time is bound by {LOSSES[part]}: 75.0 % of it."


def test_small_losses_are_not_named() -> None:
    found = found_in(metrics_with(compute=97.0, dp=3.0))

    assert (found.loss, found.sentence) == ("", "Step time is bound by computation: 97.0 % of it.")


def test_the_sentence_quotes_the_percentages_of_the_report() -> None:
    found = found_in(metrics_with(compute=1.0, tp=1.0, dp=1.0))

    # Three equal parts: the printed percentages are 33.4, 33.3 and 33.3.
    assert "bound by computation: 33.4 %" in found.sentence
    assert "tensor-parallel communication: 33.3 %" in found.sentence


def test_a_step_of_no_length_has_no_bottleneck() -> None:
    assert found_in(metrics_with()).sentence == "The step takes no time."
