"""The complete scenario of a service."""

from __future__ import annotations

import pytest

from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import resolved_serving
from clustersim.config.serving_scenario import load_serving


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [({"tp": 2}, {"tp": 2}), ({"tp": 2}, {"tp": 4}), ({"tp": 2}, {"dp": 2}), ({"dp": 2}, {"tp": 2, "dp": 2})],
    ids=["nothing", "graph", "budget", "memory"],
)
def test_pools_of_a_resolved_scenario_keep_the_sizes_that_they_differ_in(prefill: dict[str, int], decode: dict[str, int]) -> None:
    scenario = {
        "version": 1,
        "model": "llama3.1-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "serving": {"engine": "sglang", "disaggregated": {"prefill": prefill, "decode": decode}},
        "requests": {"arrival": "closed", "concurrency": 4, "count": 8, "input_tokens": 500, "output_tokens": 20},
    }
    built = build_serving(load_serving(scenario))
    again = build_serving(load_serving(resolved_serving(built)))

    assert [(pool.rules, pool.model.engine) for pool in again.pools] == [(pool.rules, pool.model.engine) for pool in built.pools]
