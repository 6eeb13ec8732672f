"""Whether a queue grows without end is told from what arrives and what is answered."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

import clustersim
from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.serving.requests import grows_without_end


def share_overloaded(load: float, n_servers: int) -> float:
    """Return in how many of some runs with 2,000 requests an M/D/c queue looks overloaded, as a share; a service takes 1,000 ticks."""
    generator = np.random.default_rng(5)
    found: list[bool] = []
    for _ in range(20):
        sent = np.cumsum(generator.exponential(1000.0 / (load * n_servers), size=2000)).astype(np.int64)
        free = [0] * n_servers
        done: list[int] = []
        for at in sent.tolist():
            done.append(max(at, heapq.heappop(free)) + 1000)
            heapq.heappush(free, done[-1])
        found.append(grows_without_end(sent, np.array(done, dtype=np.int64)))
    return sum(found) / len(found)


@pytest.mark.parametrize("n_servers", [1, 32, 256])
def test_a_queue_that_gets_a_quarter_more_than_it_serves_grows_without_end(n_servers: int) -> None:
    assert share_overloaded(1.25, n_servers) >= 0.9


@pytest.mark.parametrize("n_servers", [1, 32, 256])
def test_a_queue_that_serves_all_that_arrives_is_not_overloaded(n_servers: int) -> None:
    assert share_overloaded(0.95, n_servers) == 0.0


def test_batches_that_still_grow_at_the_end_of_a_short_run_are_no_overload() -> None:
    # Answers take 15 s of the 50 s in which requests come, and full batches give 4 % more than is asked for.
    scenario: dict[str, Any] = {
        "version": 1,
        "name": "short",
        "model": "llama3-70b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "serving": {"engine": "vllm", "tp": 2, "replicas": 4, "precision": "fp8"},
        "requests": {"arrival": "poisson", "rate": "20 /s", "count": 1000, "input_tokens": 1500, "output_tokens": 300},
        "slo": {"ttft_p99": "2 s"},
    }
    metrics: object = clustersim.run(scenario).metrics
    assert isinstance(metrics, ServingMetrics)
    assert metrics.slo is not None
    assert metrics.slo.met
    assert not metrics.overloaded
