"""Ratios of what was timed in one run, so that they hold on any machine; one that gets worse by more than a third is a fault."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import simpy
from pytest_benchmark.fixture import BenchmarkFixture

import clustersim
from clustersim.cli.watching import Profile
from clustersim.progress import watched_by
from tests.benchmarks.claims import best_s, has_not_regressed
from tests.benchmarks.test_scale_budgets import deep, step_of

ROUNDS: Final = 5
N_TIMEOUTS: Final = 100_000


def fsdp(n_nodes: int) -> dict[str, object]:
    """Return Llama 3 8B, fully sharded over all accelerators: a task for every layer, direction and rank, and collectives of all."""
    return {
        "version": 1,
        "name": "fsdp",
        "model": "llama3-8b",
        "cluster": {"node": "dgx-h100", "nodes": n_nodes},
        "training": {"global_batch_size": 16 * n_nodes, "micro_batch_size": 1, "seq_length": 8192, "precision": "bf16"},
        "strategy": {"zero_stage": 3},
    }


def bare_timeouts() -> float:
    """Return how many timeouts SimPy processes in a second, one behind the other."""
    environment, n_left = simpy.Environment(), N_TIMEOUTS

    def fire(_: simpy.Event) -> None:
        nonlocal n_left
        n_left -= 1
        if n_left:
            environment.timeout(1.0).callbacks.append(fire)

    environment.timeout(1.0).callbacks.append(fire)
    began_s = perf_counter()
    environment.run()
    return N_TIMEOUTS / (perf_counter() - began_s)


def seconds(scenario: dict[str, object]) -> float:
    began_s = perf_counter()
    clustersim.run(scenario)
    return perf_counter() - began_s


def beside(benchmark: BenchmarkFixture, scenario: dict[str, object], other: Callable[[], float]) -> float:
    """Return how many times as long a scenario takes as something else, with rounds of both in turn."""
    others: list[float] = []
    clustersim.run(scenario)
    benchmark.pedantic(clustersim.run, (scenario,), setup=lambda: others.append(other()), rounds=ROUNDS)
    return best_s(benchmark) / min(others)


def test_every_rank_by_itself_is_replayed_at_no_less_than_a_third_of_what_simpy_can_do(benchmark: BenchmarkFixture) -> None:
    timeouts_per_s: list[float] = []
    tasks_per_s: list[float] = []

    def apart() -> None:
        profile = Profile()
        with watched_by(profile):
            result = clustersim.run(fsdp(16), fold=False)
        replay_s = sum(spent_s for way, (_, spent_s) in profile.phases.items() if way[-1] == "replay")
        tasks_per_s.append(result.metrics.engine.n_tasks / replay_s)

    benchmark.pedantic(apart, setup=lambda: timeouts_per_s.append(bare_timeouts()), rounds=ROUNDS, warmup_rounds=1)

    ratio = max(tasks_per_s) / max(timeouts_per_s)
    assert has_not_regressed(benchmark, "tasks of an unfolded replay / bare timeouts of SimPy", ratio)


def test_folding_pays(benchmark: BenchmarkFixture) -> None:
    def unfolded_s() -> float:
        began_s = perf_counter()
        clustersim.run(fsdp(32), fold=False)
        return perf_counter() - began_s

    assert has_not_regressed(benchmark, "256 GPUs folded / every one of them", beside(benchmark, fsdp(32), unfolded_s))


def test_four_times_the_micro_batches_cost_next_to_nothing(benchmark: BenchmarkFixture) -> None:
    ratio = beside(benchmark, deep(1024), lambda: seconds(deep(256)))

    assert has_not_regressed(benchmark, "1,024 micro-batches / 256 of them", ratio)


def test_sixteen_times_the_accelerators_cost_little(benchmark: BenchmarkFixture) -> None:
    ratio = beside(benchmark, step_of(16_384), lambda: seconds(step_of(1_024)))

    assert has_not_regressed(benchmark, "16,384 GPUs / 1,024 of them", ratio)
