"""Exposed collectives: a finer division of the metrics."""

from __future__ import annotations

import pytest

from clustersim.apps.run.running import run
from clustersim.measure.exposure import exposures
from clustersim.measure.metrics import by_dimension


@pytest.mark.parametrize("source", ["llama3-8b-8xh100", "llama3-70b-h100-512", "resnet50-async-servers", "mixtral-8x7b-ep"])
def test_the_kinds_of_a_dimension_sum_to_what_the_metrics_have(source: str) -> None:
    result = run(source)
    rows = exposures(result.metrics, result.spans)

    for way, times in (
        ("exposed_s", result.metrics.breakdown_s.exposed_communication),
        ("hidden_s", result.metrics.overlapped_communication_s),
    ):
        for dimension, seconds in by_dimension(times).items():
            found = sum(getattr(row, way) for row in rows if row.dimension == dimension)
            assert found == pytest.approx(seconds, rel=1e-6, abs=1e-8 * result.step_time_s)


def test_transfers_of_all_stages_are_one_kind() -> None:
    result = run("llama3-70b-h100-512")

    labels = [row.label for row in exposures(result.metrics, result.spans) if row.dimension == "pp"]

    assert {"activations", "gradients sent back"} <= set(labels)
    assert not any("->" in label for label in labels)


def test_the_longest_comes_first() -> None:
    result = run("llama3-70b-h100-512")

    lengths = [row.exposed_s + row.hidden_s for row in exposures(result.metrics, result.spans)]

    assert lengths == sorted(lengths, reverse=True)
