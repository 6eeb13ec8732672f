"""Budgets of time: the best of several rounds, because other programs only ever make it slower."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import clustersim
from clustersim.apps.plot.plots import report_page
from clustersim.apps.run.running import run
from clustersim.apps.ui.controls import values_of
from clustersim.config.load import load_scenario
from clustersim.report.chrome import write_trace
from clustersim.report.kineto import write_kineto
from clustersim.trace.timeline import Timeline
from tests.benchmarks.claims import best_s, held
from tests.golden.reference import reference_timeline

HELP_BUDGET_S: Final = 0.25
DEMO_BUDGET_S: Final = 2.0
TRACE_BUDGET_S: Final = 3.0
PAGE_BUDGET_S: Final = 5.0
STEPS_BUDGET_S: Final = 5.0
UI_BUDGET_S: Final = 1.0


def test_help_starts_at_once(benchmark: BenchmarkFixture) -> None:
    command = [sys.executable, "-m", "clustersim", "--help"]

    benchmark.pedantic(subprocess.run, (command,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=7, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), HELP_BUDGET_S)


def test_the_demo_is_simulated_in_two_seconds(benchmark: BenchmarkFixture) -> None:
    assert clustersim.run is run  # imports are not timed

    benchmark.pedantic(clustersim.run, ("llama3-70b-h100-512",), rounds=3, warmup_rounds=0)

    assert held(benchmark, best_s(benchmark), DEMO_BUDGET_S)


def many_spans() -> Timeline:
    base = reference_timeline(16, 64, 2)
    spans = tuple(replace(span, detail=()) for span in base.spans)
    copies = tuple(
        replace(span, start_s=span.start_s + shift * base.step_time_s, end_s=span.end_s + shift * base.step_time_s)
        for shift in range(5)
        for span in spans
    )
    return replace(base, spans=copies)


def test_a_trace_of_half_a_million_spans_is_written_in_three_seconds(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    timeline = many_spans()

    benchmark.pedantic(write_trace, args=(timeline, tmp_path / "trace.json.gz"), rounds=3)

    assert held(benchmark, best_s(benchmark), TRACE_BUDGET_S * len(timeline.spans) / 500_000)


def test_profiles_of_half_a_million_spans_are_written_in_three_seconds(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    timeline = many_spans()

    benchmark.pedantic(write_kineto, args=(timeline, tmp_path), rounds=3)

    assert held(benchmark, best_s(benchmark), TRACE_BUDGET_S * len(timeline.spans) / 500_000)


def test_a_page_of_sixteen_thousand_accelerators_is_written_in_five_seconds(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(report_page, (["llama3-405b-16k-cost"],), rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), PAGE_BUDGET_S)


@pytest.mark.parametrize("bucket", ["25 MB", "1 GB"], ids=["in four slices", "in one"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_thousand_steps_of_eight_uneven_workers_are_simulated_in_time(benchmark: BenchmarkFixture, mode: str, bucket: str) -> None:
    # The model is pushed in four slices by default: 140 tasks in a synchronous step. In one slice there are 41.
    changes = [
        "cluster.nodes=2",
        "training.global_batch_size=512",
        "strategy.data_parallel.servers=2",
        f"strategy.data_parallel.mode={mode}",
        f"strategy.data_parallel.bucket={bucket}",
        "steps=1000",
    ]

    benchmark.pedantic(clustersim.run, ("resnet50-async-servers",), {"set": changes}, rounds=2, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), STEPS_BUDGET_S)


def many_workers() -> dict[str, object]:
    """Return 64 workers at their own pace, of whom one is slow, with a server on each of eight nodes."""
    return {
        "version": 1,
        "name": "many-workers",
        "model": {"num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 8192, "vocab_size": 50304},
        "cluster": {"node": "dgx-a100-80g", "nodes": 8, "stragglers": [{"ranks": 3, "slowdown": 1.3}]},
        "training": {"global_batch_size": 64, "micro_batch_size": 1, "seq_length": 1024, "precision": "bf16"},
        "strategy": {"data_parallel": {"mode": "async", "algorithm": "parameter_server", "servers": 8}},
    }


def both_ways() -> dict[str, object]:
    """Return 50 steps of 64 accelerators with jitter, in eight stages through which micro-batches go both ways."""
    return {
        "version": 1,
        "name": "both-ways",
        "model": "gpt2-xl",
        "cluster": {"node": "dgx-a100-80g", "nodes": 8, "jitter": "3 %"},
        "training": {"global_batch_size": 256, "micro_batch_size": 1, "seq_length": 1024, "precision": "bf16"},
        "strategy": {"pp": 8, "schedule": "dualpipe"},
        "steps": 50,
    }


@pytest.mark.parametrize(("scenario", "budget_s"), [(many_workers(), 5.0), (both_ways(), 30.0)], ids=["asynchronous workers", "dualpipe"])
def test_many_steps_of_64_accelerators_are_simulated_in_time(
    benchmark: BenchmarkFixture, scenario: dict[str, object], budget_s: float
) -> None:
    benchmark.pedantic(clustersim.run, (scenario,), rounds=2)

    assert held(benchmark, best_s(benchmark), budget_s)


def test_the_page_answers_a_change_of_512_accelerators_in_a_second(benchmark: BenchmarkFixture) -> None:
    showing = pytest.importorskip("clustersim.apps.ui.desk", reason="dash is not installed")
    base = dict(load_scenario("llama3-70b-h100-512").document.data)
    batches = iter((1024, 2048, 1536, 512))

    def change() -> str:
        changed = {**base, "training": {"global_batch_size": next(batches), "seq_length": 8192}}
        seen = showing.look(changed, values_of(changed))
        assert isinstance(seen, showing.Seen)
        return json.dumps(seen.shown, default=lambda part: part.to_plotly_json())

    benchmark.pedantic(change, rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), UI_BUDGET_S)
