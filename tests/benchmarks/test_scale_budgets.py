"""What a training step of very many accelerators, and a collective over many, may take in time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.hardware.communication import CollectiveOp
from clustersim.scenario.collective import CollectiveRequest, collective_cluster, collective_rows
from clustersim.scenario.run import run
from tests.benchmarks.claims import best_s, held

STEP_BUDGETS: Final = {16_384: (2.0, 500e6), 131_072: (6.0, 1.5e9)}
"""Seconds, and bytes beyond those of the imported program."""
GROWTH_BUDGET: Final = 4.0
"""What 131,072 accelerators may take, over what 1,024 take, with equally many micro-batches."""
RING_BUDGET_S: Final = 0.1
ALL_TO_ALL_BUDGET_S: Final = 1.0

PEAK_MEMORY: Final = """
import json, sys
from clustersim.scenario.run import run

def peak_bytes():
    # Unlike what getrusage says, this does not count the process that started this one.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return 1024.0 * int(line.split()[1])

imported_bytes = peak_bytes()
run(json.loads(sys.argv[1]))
print(peak_bytes() - imported_bytes)
"""


def step_of(n_gpus: int) -> dict[str, object]:
    """Return Llama 3.1 405B on so many H100s in 16 stages; each replica takes 16 micro-batches."""
    return {
        "version": 1,
        "name": f"405b-on-{n_gpus}",
        "model": "llama3.1-405b",
        "cluster": {"node": "dgx-h100", "nodes": n_gpus // 8},
        "training": {"global_batch_size": n_gpus // 8, "micro_batch_size": 1, "seq_length": 8192, "precision": "bf16"},
        "strategy": {"tp": 8, "pp": 16, "dp": "auto", "stage_layers": "balanced"},
    }


@pytest.mark.parametrize("n_gpus", list(STEP_BUDGETS))
def test_a_step_of_many_accelerators_is_simulated_in_time(n_gpus: int, benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, (step_of(n_gpus),), rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), STEP_BUDGETS[n_gpus][0])


@pytest.mark.parametrize("n_gpus", list(STEP_BUDGETS))
def test_a_step_of_many_accelerators_fits_in_memory(n_gpus: int, benchmark: BenchmarkFixture) -> None:
    command = [sys.executable, "-c", PEAK_MEMORY, json.dumps(step_of(n_gpus))]

    done = benchmark.pedantic(partial(subprocess.run, capture_output=True, text=True, check=True), (command,), rounds=1)

    peak_bytes = float(done.stdout)
    assert peak_bytes > 0.0
    assert held(benchmark, peak_bytes, STEP_BUDGETS[n_gpus][1], "B")


def test_many_accelerators_take_little_longer_than_some(benchmark: BenchmarkFixture) -> None:
    some_s: list[float] = []

    def before_each_round() -> None:
        began_s = perf_counter()
        run(step_of(1_024))
        some_s.append(perf_counter() - began_s)

    run(step_of(1_024))
    benchmark.pedantic(run, (step_of(131_072),), setup=before_each_round, rounds=5)

    assert held(benchmark, best_s(benchmark) / min(some_s), GROWTH_BUDGET, "times")


@pytest.mark.parametrize(
    ("op", "algorithm", "n_nodes", "budget_s"),
    [("all_reduce", "ring", 128, RING_BUDGET_S), ("all_to_all", "direct", 64, ALL_TO_ALL_BUDGET_S)],
    ids=["a ring of 1,024", "all pairs of 512"],
)
def test_a_collective_over_many_ranks_is_simulated_in_time(
    op: CollectiveOp, algorithm: str, n_nodes: int, budget_s: float, benchmark: BenchmarkFixture
) -> None:
    cluster = collective_cluster("dgx-h100", n_nodes, ())
    request = CollectiveRequest(op=op, algorithm=algorithm, sizes_bytes=(2.0**30,))

    benchmark.pedantic(collective_rows, (cluster, request), rounds=5, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), budget_s)
