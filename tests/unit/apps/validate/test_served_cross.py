"""Sources of served runs that are predicted by constants they had no share in, and the error bars that follow."""

from __future__ import annotations

import pytest

from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.apps.validate.served import served_result, served_rows
from clustersim.apps.validate.served_cross import FITTED, ServedCase, adapted, borrowed_widenings, cross_validate_served
from clustersim.config.serving_scenario import load_serving
from clustersim.hardware.catalog import load_accelerator
from clustersim.hardware.serving_constants import kernel_constants, without_measurements
from clustersim.measure.serving_metrics import ServingMetrics

CHAT: dict[str, object] = {
    "version": 1,
    "model": "llama3.1-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "serving": {"engine": "vllm", "replicas": 1},
    "requests": {"arrival": "poisson", "rate": "2 /s", "count": 80, "input_tokens": 500, "output_tokens": 40},
}


def test_shipped_values_are_the_shipped_prediction() -> None:
    row = next(served_rows("inferencex"))
    shipped = tuple((name, constant.shipped) for name, constant in FITTED.items())
    assert served_result(row, lambda built: adapted(shipped, built)).predicted == served_result(row).predicted


def test_more_host_time_is_a_slower_answer() -> None:
    row = next(row for row in served_rows("aiconfigurator") if "vllm@" in str(row.scenario))
    slow = served_result(row, lambda built: adapted((("vllm_host", 4.0),), built))
    assert slow.predicted["tpot_s"] > served_result(row).predicted["tpot_s"]


@pytest.mark.slow
def test_a_source_alone_is_predicted_with_what_is_assumed() -> None:
    found = cross_validate_served(("gpustack",), jobs=1)
    (fold, *_) = [fold for fold in found.folds if fold.kind == "source"]
    assert dict(fold.constants) == {name: constant.neutral for name, constant in FITTED.items()}


def test_an_accelerator_without_measurements_borrows_from_the_next() -> None:
    h100 = load_accelerator("h100-sxm5-80g")

    with without_measurements(["h100-sxm5-80g"]):
        _, lent = kernel_constants(h100, "vllm", "product", "bf16")

    assert lent is not None
    assert lent.lender == "h200-sxm"
    assert kernel_constants(h100, "vllm", "product", "bf16")[1] is None


def test_kernels_of_another_generation_predict_worse() -> None:
    row = next(row for row in served_rows("inference_bench") if "mi300x" in str(row.scenario["cluster"]))
    grown = borrowed_widenings([ServedCase(row=row, accelerator="mi300x", depends_on=())], 1)
    assert grown["output_tokens_per_s"] > 2.0


@pytest.fixture
def metrics() -> ServingMetrics:
    result = run_serving(build_serving(load_serving(CHAT)))
    return result.metrics


def test_an_interval_holds_the_prediction_and_a_whole_is_its_parts(metrics: ServingMetrics) -> None:
    assert metrics.tpot_s is not None
    assert metrics.tpot_interval_s is not None
    assert metrics.e2e_interval_s is not None
    assert metrics.ttft_interval_s is not None
    assert metrics.tpot_interval_s[0] < metrics.tpot_s.mean < metrics.tpot_interval_s[1]
    assert metrics.e2e_interval_s[0] == pytest.approx(metrics.ttft_interval_s[0] + 39 * metrics.tpot_interval_s[0], rel=1e-9)


def test_a_service_far_below_its_capacity_produces_what_is_asked_for(metrics: ServingMetrics) -> None:
    assert metrics.rate_binds
    assert metrics.full_load_output_tokens_per_s > 30 * metrics.output_tokens_per_s
    assert metrics.output_tokens_per_s_interval == (metrics.output_tokens_per_s, metrics.output_tokens_per_s)


def _chat(**requests: object) -> ServingMetrics:
    return run_serving(build_serving(load_serving({**CHAT, "requests": {"input_tokens": 500, "output_tokens": 40, **requests}}))).metrics


def test_a_service_near_its_capacity_may_produce_less_than_is_asked_for() -> None:
    busy = _chat(arrival="constant", rate="65 /s", count=400)

    assert busy.rate_binds
    assert busy.output_tokens_per_s_interval is not None
    assert busy.output_tokens_per_s_interval[0] < busy.output_tokens_per_s == busy.output_tokens_per_s_interval[1]


@pytest.mark.parametrize(("input_tokens", "count"), [(500, 3000), (20_000, 300)])
def test_full_batches_give_what_the_closed_form_says(input_tokens: int, count: int) -> None:
    full = _chat(arrival="at_once", input_tokens=input_tokens, count=count)

    assert full.full_load_output_tokens_per_s == pytest.approx(full.output_tokens_per_s, rel=0.1)
