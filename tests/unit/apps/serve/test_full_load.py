"""Tokens that requests at a rate ask for."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from clustersim.apps.serve.serving_result import ServingResult


def run(requests: dict[str, Any]) -> ServingResult:
    cluster, serving = {"node": "dgx-h100", "nodes": 1}, {"engine": "vllm", "replicas": 1}
    common = {"version": 1, "name": "chat", "model": "llama3.1-8b", "cluster": cluster, "serving": serving, "cost": {"gpu_hour": "2 USD"}}
    result = clustersim.run(common | {"requests": {"arrival": "poisson"} | requests})
    assert isinstance(result, ServingResult)
    return result


def test_cost_at_a_rate_counts_no_tokens_of_requests_that_are_refused() -> None:
    lengths = {"input_tokens": {"uniform": [1000, 250_000]}, "output_tokens": 200}

    metrics = run({"rate": "0.02 /s", "count": 43, "warmup": 3} | lengths).metrics

    answered_per_s = 0.02 * metrics.requests.measured / 40
    assert 0.005 < answered_per_s < 0.015
    assert metrics.cost is not None
    assert metrics.cost.per_million_output_tokens.usd == pytest.approx(8 * 2.0 / 3600.0 / (200 * answered_per_s * 1e-6))
