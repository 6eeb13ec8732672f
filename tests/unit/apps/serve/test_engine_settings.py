"""Settings of the engine: those that a report has, and those that leave no room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import clustersim
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.report.serving_summary import markdown_serving


def run(serving: dict[str, Any], **requests: Any) -> ServingResult:
    asked = {"arrival": "poisson", "rate": "40 /s", "count": 300, "input_tokens": 500, "output_tokens": 40}
    result = clustersim.run(
        {
            "version": 1,
            "name": "chat",
            "model": "llama3.1-8b",
            "cluster": {"node": "dgx-h100", "nodes": 1},
            "serving": {"engine": "vllm", "replicas": 1} | serving,
            "requests": asked | requests,
        }
    )
    assert isinstance(result, ServingResult)
    return result


def test_a_report_has_the_settings_of_the_engine_and_the_steps_beyond_the_largest_graph() -> None:
    found = run({"max_graph_tokens": 4, "memory_fraction": 0.6})
    usual = run({})

    assert 0.0 < found.metrics.settings[0].without_graphs_fraction <= 1.0
    assert usual.metrics.settings[0].without_graphs_fraction == 0.0
    text = " ".join(str(found).split())
    assert "max_batched_tokens 8,192, max_graph_tokens 4, max_num_seqs 1,024, memory_fraction 0.6" in text
    assert "run without CUDA graphs: max_graph_tokens is 4" in text
    assert "reserve is 1 - memory_fraction" in text
    assert "without CUDA graphs" not in str(usual)


def test_all_steps_run_without_graphs_where_there_are_none() -> None:
    assert run({"max_graph_tokens": 0}).metrics.settings[0].without_graphs_fraction == 1.0


def test_a_share_of_the_memory_that_is_too_small_is_answered_with_the_default() -> None:
    with pytest.raises(InfeasibleError, match=r"it fits with memory_fraction: 0\.9, the engine's default, in place of 0\.03"):
        run({"memory_fraction": 0.03})


def test_a_replica_that_is_too_large_is_told_with_its_degrees_and_those_of_sglang() -> None:
    with pytest.raises(ScenarioError, match=r"serving\.dp: 1 replica of 64 \(tp 8 x dp 8\).*SGLang's --tp 8 --dp 8 is tp: 1, dp: 8"):
        run({"engine": "sglang", "tp": 8, "dp": 8})


def test_gpus_that_replicas_leave_over_are_told() -> None:
    left = run({"dp": 3, "replicas": "auto"}, count=20)

    assert "2 of the 8 GPUs serve nothing: each replica takes 3" in {flag.message for flag in left.flags}
    assert "idle_gpus" not in {flag.code for flag in run({"replicas": "auto"}, count=20).flags}


def test_an_overloaded_service_is_told_the_rate_that_full_batches_answer() -> None:
    busy = run({}, rate="400 /s", count=1500)

    rate = busy.metrics.full_load_output_tokens_per_s / 40
    assert any(flag.message.endswith(f"full batches answer about {rate:.3g} requests/s") for flag in busy.flags)


def test_a_mean_above_the_99th_percentile_of_gaps_is_explained() -> None:
    assert "raise the mean above p99" in str(
        run({"engine": "sglang", "dp": 3, "replicas": "auto"}, rate="3 /s", count=60, input_tokens=800, output_tokens=200)
    )
    assert "raise the mean above p99" not in str(run({}))


def test_an_interval_stands_in_the_unit_of_its_latency() -> None:
    metrics = replace(run({}, count=100).metrics, ttft_interval_s=(0.04, 1.3))

    assert "time to first token: 40 to 1300 ms" in markdown_serving(metrics)
