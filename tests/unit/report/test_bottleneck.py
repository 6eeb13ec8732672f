"""The bottleneck of a step, in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.measure.metrics import Breakdown, ByDimension, Metrics
from clustersim.measure.steps_report import StepsReport, WaitedFor
from clustersim.report.bottleneck import LOSS_RULES, Bottleneck, find_bottleneck
from clustersim.report.shares import PART_LABELS
from tests.golden.reference import reference_metrics, reference_timeline

REFERENCE = reference_metrics(reference_timeline())


def metrics_with(*, mfu: float = 0.5, hfu: float = 0.5, **seconds: float) -> Metrics:
    """Return metrics of a step that consists of the given parts and nothing else."""
    dimensions = {name: seconds.pop(name) for name in list(seconds) if name in {"tp", "pp", "dp", "ep", "cp", "ps", "offload"}}
    parts = {"compute": 0.0, "bubble": 0.0, "stall": 0.0, "optimizer": 0.0, "host": 0.0} | seconds
    breakdown = Breakdown(exposed_communication=ByDimension(**dimensions), **parts)
    return replace(REFERENCE, breakdown_s=breakdown, step_time_s=sum(parts.values()) + sum(dimensions.values()), mfu=mfu, hfu=hfu)


def found_in(metrics: Metrics) -> Bottleneck:
    """Return the bottleneck of a step in which nothing is recomputed."""
    return find_bottleneck(metrics, replace(reference_timeline(), spans=()))


def test_recomputation_is_a_loss() -> None:
    timeline = reference_timeline()
    spans = tuple(replace(span, recompute_s=0.3 * span.compute_s) for span in timeline.spans)

    found = find_bottleneck(metrics_with(compute=4.0, tp=1.0), replace(timeline, spans=spans))

    assert (found.loss, found.loss_percent) == ("recompute", 24.0)
    assert found.opening == "Step time is bound by computation: 80.0 % of it. The largest loss is recomputation: 24.0 %."


def test_every_part_but_computation_has_a_rule() -> None:
    assert set(LOSS_RULES) == {*PART_LABELS, "recompute"} - {"compute"}


@pytest.mark.parametrize("part", [part for part in LOSS_RULES if part != "recompute"])
def test_the_largest_loss_is_named_with_its_remedy(part: str) -> None:
    found = found_in(metrics_with(compute=4.0, **{part: 1.0}))

    assert (found.part, found.loss) == ("compute", part)
    assert found.fraction == pytest.approx(0.8, rel=1e-12)
    assert found.sentence == (
        f"Step time is bound by computation: 80.0 % of it. The largest loss is {LOSS_RULES[part].name}: 20.0 %. "
        f"{LOSS_RULES[part].remedy} would help first."
    )


@pytest.mark.parametrize("part", [part for part in LOSS_RULES if part != "recompute"])
def test_a_loss_larger_than_computation_is_named_once(part: str) -> None:
    found = found_in(metrics_with(compute=1.0, **{part: 3.0}))

    assert (found.part, found.loss) == (part, part)
    assert found.sentence == f"Step time is bound by {LOSS_RULES[part].name}: 75.0 % of it. {LOSS_RULES[part].remedy} would help first."


def test_where_others_waited_for_somebody_it_says_for_whom() -> None:
    slow = WaitedFor(name="rank 3", ranks=1, slow="", waited_s=0.9, steps_fraction=1.0)
    steps = StepsReport(
        steps=1,
        mean_s=5.0,
        median_s=5.0,
        p95_s=5.0,
        confidence_interval_s=None,
        waited_for=(slow,),
        workers=(),
        staleness=None,
    )
    late, nobody = (replace(metrics_with(compute=4.0, stall=1.0), steps=each) for each in (steps, replace(steps, waited_for=())))

    assert found_in(late).sentence.endswith("Repairing or leaving out rank 3 would help first.")
    assert found_in(nobody).sentence.endswith(f"{LOSS_RULES['stall'].remedy} would help first.")


@pytest.mark.parametrize(
    ("mfu", "hfu", "remedy"),
    [
        (0.3, 0.3, "A larger micro-batch (kernels reach 31 % of the peak)"),
        (0.6, 0.6, "A lower precision, or a faster accelerator,"),
    ],
)
def test_without_losses_computation_itself_is_what_to_improve(mfu: float, hfu: float, remedy: str) -> None:
    found = found_in(metrics_with(compute=97.0, dp=3.0, mfu=mfu, hfu=hfu))

    assert found.loss == ""
    assert found.sentence == f"Step time is bound by computation: 97.0 % of it. {remedy} would help first."


def test_the_sentence_quotes_the_percentages_of_the_report() -> None:
    found = found_in(metrics_with(compute=1.0, tp=1.0, dp=1.0))

    # Three equal parts: the printed percentages are 33.4, 33.3 and 33.3.
    assert "bound by computation: 33.4 %" in found.sentence
    assert "tensor-parallel communication: 33.3 %" in found.sentence


def test_a_step_of_no_length_has_no_bottleneck() -> None:
    assert found_in(metrics_with()).sentence == "The step takes no time."
