"""The cells of text that reports share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.report.facts import (
    N_STAGES_SHOWN,
    TIER_LABELS,
    gpus_text,
    headline,
    layout_line,
    link_rows,
    memory_parts,
    memory_verdict,
    rate_text,
    shown_stages,
)
from clustersim.report.metrics import Parallelism, TierUse
from clustersim.topology.cluster import TIERS
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def test_the_layout_names_degrees_and_what_was_replayed() -> None:
    assert layout_line(METRICS, TIMELINE) == "512 GPUs: dp 16, tp 8, pp 4; 4 rank classes replayed"


def test_the_layout_names_context_and_expert_parallelism_where_there_is_some() -> None:
    metrics = replace(METRICS, parallelism=Parallelism(dp=4, tp=1, pp=1, cp=2, ep=4))

    assert layout_line(metrics, TIMELINE).startswith("512 GPUs: dp 4, tp 1, pp 1, cp 2, ep 4")


def test_an_unfolded_replay_does_not_speak_of_classes() -> None:
    timeline = replace(TIMELINE, engine=replace(TIMELINE.engine, folded=False))

    assert layout_line(METRICS, timeline) == "512 GPUs: dp 16, tp 8, pp 4"


@pytest.mark.parametrize(("gpus", "text"), [(1, "1 GPU"), (2, "2 GPUs"), (24576, "24,576 GPUs")])
def test_gpus_are_counted_in_words(gpus: int, text: str) -> None:
    assert gpus_text(replace(METRICS, gpus=gpus)) == text


def test_the_headline_has_what_people_compare() -> None:
    assert dict(headline(METRICS)) == {
        "step time": "352 ms",
        "tokens/s": "1,489,455",
        "tokens/s/GPU": "2,909",
        "MFU": "27.6 %",
        "HFU": "30.3 %",
        "TFLOP/s per GPU": "272.7",
    }


@pytest.mark.parametrize(("value", "text"), [(0.01234567, "0.01235"), (12.3456, "12.35"), (1000.0, "1,000"), (1234567.8, "1,234,568")])
def test_rates_keep_four_digits(value: float, text: str) -> None:
    assert rate_text(value) == text


@pytest.mark.parametrize(
    ("capacity_bytes", "text"),
    [(80e9, "fits in 80 GB, 20.5 GB to spare"), (59.5e9, "fits in 59.5 GB, 0 B to spare"), (40e9, "does not fit in 40 GB, by 19.5 GB")],
)
def test_the_verdict_says_by_how_much(capacity_bytes: float, text: str) -> None:
    assert memory_verdict(reference_metrics(TIMELINE, capacity_bytes=capacity_bytes)) == text


def test_a_few_stages_are_all_listed() -> None:
    stages, rest = shown_stages(METRICS)

    assert [stage.stage for stage in stages] == [0, 1, 2, 3]
    assert rest == ""


def test_of_many_stages_the_fullest_are_listed_in_order() -> None:
    timeline = reference_timeline(16, 16)

    stages, rest = shown_stages(reference_metrics(timeline))

    assert [stage.stage for stage in stages] == list(range(N_STAGES_SHOWN))
    assert rest == "and 4 more stages with at most 55.5 GB each"


def test_parts_of_memory_sum_to_the_peak() -> None:
    for stage in METRICS.memory.by_stage:
        assert sum(memory_parts(stage).values()) == stage.peak_bytes


def test_the_tier_nearest_to_saturation_comes_first() -> None:
    rows = link_rows(METRICS, TIMELINE)

    assert [(row.tier, row.peak, row.busiest) for row in rows] == [
        ("NIC to leaf", "100.0 %", "nic 0 to leaf 0"),
        ("NVLink", "80.0 %", "gpu 0 to nvswitch"),
        ("spine to core", "50.0 %", "leaf 0 to spine 0"),
    ]


def test_a_tier_that_carries_nothing_is_left_out() -> None:
    idle = TierUse(tier="pcie", mean_utilisation=0.0, peak_utilisation=0.0, bytes=0.0)

    assert len(link_rows(replace(METRICS, links=(*METRICS.links, idle)), TIMELINE)) == 3


def test_every_tier_has_a_label() -> None:
    assert set(TIER_LABELS) == set(TIERS)
