"""The fewest GPUs that keep the promises of a service, and the bounds that prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf

import numpy as np
import pytest

from clustersim.apps.plan.serving_bounds import least_replicas, least_tpot_s, replica_bounds, whole_work_s
from clustersim.apps.plan.serving_search import ServingPlan, plan_serving
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.config.load import read_source
from clustersim.config.serving_scenario import load_serving
from clustersim.errors import ScenarioError
from clustersim.network.in_flight import TICK_S

ONLY: Mapping[str, Sequence[str]] = {"tp": ("1", "2", "4"), "engine": ("vllm", "sglang"), "max_num_seqs": ("16", "128")}


def service(rate: str = "30 /s", **slo: str) -> dict[str, object]:
    return {
        "version": 1,
        "model": "llama3.1-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "serving": {"engine": "vllm"},
        "requests": {"arrival": "poisson", "rate": rate, "count": 150, "input_tokens": 800, "output_tokens": 60},
        "slo": slo or {"ttft_p99": "1 s", "e2e_p99": "3 s"},
    }


def planned(scenario: dict[str, object], most_gpus: int = 8) -> ServingPlan:
    return plan_serving(read_source(scenario), only=ONLY, most_gpus=most_gpus)


def test_fewer_gpus_keep_the_promises_nowhere_in_the_space() -> None:
    found = planned(service())
    assert found.best is not None
    assert found.proven
    for tp, engine, batch, budget in product((1, 2, 4), ("vllm", "sglang"), (16, 128), (2048, 8192)):
        for replicas in range(1, (found.best.gpus - 1) // tp + 1):
            serving = {"engine": engine, "tp": tp, "max_num_seqs": batch, "max_batched_tokens": budget, "replicas": replicas}
            metrics = run_serving(build_serving(load_serving(service() | {"serving": serving}))).metrics
            assert metrics.slo is not None
            assert not metrics.slo.met or metrics.overloaded


@pytest.mark.parametrize("model", ["llama3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_no_replay_is_below_its_bounds(model: str, precision: str) -> None:
    serving = {"engine": "vllm", "precision": precision, "tp": 2, "replicas": 2}
    built = build_serving(load_serving(service() | {"model": model, "serving": serving}))
    bounds = replica_bounds(built)
    result = run_serving(built)
    busy_s = result.run.steps.busy_ticks * TICK_S
    assert all(float(np.sum(work_s)) <= busy_s for work_s in whole_work_s(built, bounds))
    assert result.metrics.tpot_s is not None
    assert least_tpot_s(built, bounds) <= result.metrics.tpot_s.p50


def test_every_replay_that_keeps_the_promises_has_the_replicas_of_its_bound() -> None:
    found = planned(service())
    assert found.replayed
    assert all(each.replicas >= each.candidate.least_replicas for each in found.replayed if each.keeps)


def test_a_promise_inside_an_interval_is_not_decided_and_more_gpus_are_named() -> None:
    found = planned(service())
    assert found.best is not None
    assert found.surely is not None
    limits = [(check.interval_s, check.limit_s) for check in found.best.checks if check.interval_s]
    assert found.best.decided == all(interval_s[1] <= limit_s for interval_s, limit_s in limits)
    assert all(check.interval_s is None or check.interval_s[1] <= check.limit_s for check in found.surely.checks)
    assert found.surely.gpus >= found.best.gpus


def test_the_next_best_is_of_another_kind() -> None:
    found = planned(service())
    best, *others = found.kinds
    assert best == found.best
    assert others
    assert len({each.candidate.kind for each in found.kinds}) == len(found.kinds)


def test_a_rate_beyond_the_roofline_asks_for_more_replicas() -> None:
    scenario = load_serving(service(rate="4000 /s", ttft_p99="100 ms"))
    assert scenario.spec.slo is not None
    built = build_serving(scenario)
    least, reason = least_replicas(built, replica_bounds(built), scenario.spec.slo)
    assert least > 5
    assert reason == "ttft_p99: work of all requests"


def test_a_promise_below_the_time_to_read_the_weights_is_refused_without_a_replay() -> None:
    found = planned(service(tpot_p99="1 ms"))
    assert found.best is None
    assert not found.replayed
    assert found.rejected == {"tpot_p99: reading the weights takes longer": 24}
    assert found.least_gpus == inf


def test_where_nobody_keeps_the_promises_the_nearest_is_named() -> None:
    found = planned(service(ttft_p99="30 ms"), most_gpus=2)
    assert found.best is None
    assert found.nearest is not None
    assert found.nearest.broken == ("ttft_p99",)


def test_a_promise_that_a_request_by_itself_breaks_is_not_tried_with_more_replicas() -> None:
    found = planned(service(ttft_p99="8 ms"))
    assert found.best is None
    assert found.least_gpus == inf
    assert len({each.candidate for each in found.replayed}) == len(found.replayed)
    assert found.rejected == {"ttft_p99: a request by itself takes longer": len(found.replayed)}


def test_a_scenario_without_promises_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'slo' is missing"):
        planned({name: value for name, value in service().items() if name != "slo"})
