"""DeepSeek's own service, unfitted: open-infra-index, day 6 of the open source week, March 2025."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.config.serving_scenario import load_serving
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator
from clustersim.hardware.serving_constants import kernel_constants
from clustersim.kernels.kernel_model import kernel_s
from clustersim.serving.batch import StepBatch

PREFILL_TOKENS_PER_S, DECODE_TOKENS_PER_S = 73_700.0, 14_800.0
"""Input and output tokens a second of a node of eight H800; 56.3 % of the input was cached, and contexts had 4,989 tokens."""


def _scenario(n_nodes: int, serving: dict[str, object], requests: dict[str, object]) -> dict[str, object]:
    both = {"engine": "sglang", "precision": "fp8", "tp": 1, "redundant_experts": 32, "replicas": 1}
    means = {"expert_exchange": "all_to_all", "two_batch_overlap": True}
    return {
        "version": 1,
        "model": "deepseek-v3",
        "cluster": {"node": "hgx-h800", "nodes": n_nodes},
        "serving": {**both, **means, **serving},
        "requests": requests,
    }


def test_prefill_nodes_take_as_many_tokens_as_published(tmp_path: Path) -> None:
    count, trace = 32 * 4 * 6, tmp_path / "prompts.csv"
    shared = "0-4"  # 2,560 of 4,608 tokens, which all but the first prompts find in the cache
    lines = (f"0,4608,1,{shared} {1000 + 4 * each}-{1003 + 4 * each}" for each in range(count))
    trace.write_text("arrival_s,input_tokens,output_tokens,prefix_blocks\n" + "\n".join(lines) + "\n")
    layout = {"dp": 32, "ep": 32, "max_batched_tokens": 8192, "prefix_cache": True}
    scenario = _scenario(4, layout, {"arrival": "trace", "trace": str(trace)})

    metrics = run_serving(build_serving(load_serving(scenario))).metrics

    assert count * 4608 / metrics.duration_s / 4 == pytest.approx(PREFILL_TOKENS_PER_S, rel=0.15)


def test_decode_nodes_give_as_many_tokens_as_published() -> None:
    n = 88 * 144  # 14,800 / 8 tokens a second of a GPU, at 21 for each user
    requests = {"arrival": "closed", "concurrency": n, "count": n, "input_tokens": 4889, "output_tokens": 200}
    model = build_serving(load_serving(_scenario(18, {"dp": 144, "ep": 144, "max_num_seqs": 88}, requests))).pools[0].model

    step_s = model.step(StepBatch((), n, n * 4989, 4989)).total_s

    assert n / step_s / 18 == pytest.approx(DECODE_TOKENS_PER_S, rel=0.15)


GROUPED_TFLOPS = {
    (1, 1024, 4096, 7168): 1233,
    (1, 1024, 7168, 2048): 925,
    (2, 512, 4096, 7168): 1040,
    (2, 512, 7168, 2048): 916,
    (4, 256, 4096, 7168): 932,
    (4, 256, 7168, 2048): 815,
}
"""Rates by groups, rows of each, columns and depth: deepseek-ai/DeepGEMM, README.md of February 2025, grouped products in masked layout."""


@pytest.mark.parametrize("shape", GROUPED_TFLOPS)
def test_grouped_products_of_experts_are_as_fast_as_their_authors_print(shape: tuple[int, int, int, int]) -> None:
    groups, rows, columns, depth = shape
    device = load_accelerator("h800-sxm5-80g")
    constants, _ = kernel_constants(device, "sglang", "product", "fp8_block")
    flops, bandwidth = 2.0 * groups * rows * columns * depth, device.memory_bandwidth_bytes_per_s

    found_s = kernel_s(
        constants,
        read_s=groups * columns * depth / bandwidth,
        compute_s=flops / (2.0 * device.peak_16_flops_per_s),
        activation_s=groups * rows * (columns + depth) * 2.0 / bandwidth,
    )

    assert found_s == pytest.approx(flops / (GROUPED_TFLOPS[shape] * 1e12), rel=0.25)


def test_an_exchange_without_ranks_of_their_own_is_refused() -> None:
    requests = {"arrival": "closed", "concurrency": 1, "count": 1, "input_tokens": 10, "output_tokens": 10}
    scenario = _scenario(2, {"tp": 16, "ep": 16}, requests)

    with pytest.raises(ScenarioError, match="does nothing without attention data parallelism"):
        build_serving(load_serving(scenario))
