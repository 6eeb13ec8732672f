"""The fewest GPUs that keep the promises of a service, and the bounds that prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.apps.plan.serving_bounds import least_replicas, least_tpot_s, replica_bounds, whole_work_s
from clustersim.apps.plan.serving_search import ServingPlan, plan_serving
from clustersim.apps.serve.deployment import build_serving, refused_of, refused_text
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
    assert reason == "ttft_p99: prefill time of all requests"


def test_a_promise_below_the_time_to_read_the_weights_is_refused_without_a_replay() -> None:
    found = planned(service(tpot_p99="1 ms"))
    assert found.best is None
    assert not found.replayed
    assert found.rejected == {"tpot_p99: decode time, reading the weights alone takes longer": 24}
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


def long_requests(n_long: int, folder: Path) -> dict[str, object]:
    """Return a service of 200 requests, some of which are longer than the 8,192 positions of the model."""
    rows = [f"{number * 0.1:.1f},{9000 if number % 3 == 1 and number < 3 * n_long else 500},20" for number in range(200)]
    (folder / "trace.csv").write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]), encoding="utf-8")
    asked = {"arrival": "trace", "trace": str(folder / "trace.csv")}
    return service(ttft_p99="2 s") | {"model": "llama3-8b", "requests": asked}


def test_requests_that_are_too_long_do_not_void_a_promise_that_allows_them(tmp_path: Path) -> None:
    found = planned(long_requests(2, tmp_path))
    assert found.best is not None
    assert found.best.metrics.requests.refused == 2
    (said,) = [flag.message for flag in found.best.metrics.flags if flag.code == "refused"]
    assert said.startswith("2 requests are longer than the 8,192 positions of the model; take a model with more positions")


def test_more_requests_that_are_too_long_than_a_promise_allows_are_a_no_without_a_replay(tmp_path: Path) -> None:
    found = planned(long_requests(3, tmp_path))
    assert found.best is None
    assert not found.replayed
    (reason,) = found.rejected
    assert reason.startswith("ttft_p99 allows 1 % of requests without an answer: 3 requests are longer than the 8,192 positions")


def test_one_request_that_is_too_long_is_one(tmp_path: Path) -> None:
    built = build_serving(load_serving(long_requests(1, tmp_path)))
    assert refused_text(built, int(refused_of(built).sum())).startswith("1 request is longer than the 8,192 positions")


def test_a_refused_request_hides_no_overload(tmp_path: Path) -> None:
    slow = {"engine": "vllm", "max_num_seqs": 1}
    scenario: dict[str, Any] = long_requests(1, tmp_path) | {"serving": slow}
    scenario["requests"]["speed"] = 20
    metrics = run_serving(build_serving(load_serving(scenario))).metrics
    assert metrics.requests.refused == 1
    assert metrics.overloaded
