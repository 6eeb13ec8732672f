"""Time and memory of a training step of very many accelerators, and of a collective over many."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from random import Random
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.apps.collective.collective_times import CollectiveRequest, collective_cluster, collective_rows
from clustersim.apps.run.running import run
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from tests.benchmarks.claims import best_s, held
from tests.unit.topology.factories import make_fabric, make_node

STEP_BUDGETS: Final = {16_384: (2.0, 500e6), 131_072: (6.0, 500e6), 1_048_576: (8.0, 1e9)}
"""Seconds, and bytes beyond those of the imported program."""
UNLIKE_BUDGET_S: Final = 4.0
RANDOM_BUDGET_S: Final = 20.0
RACKS_BUDGET_S: Final = 5.0
EXPERTS_BUDGET_S: Final = 4.0
DEEP_BUDGET_S: Final = 1.0
RUNS_PER_S: Final = 25.0
"""Steps of 64 accelerators, one after the other."""
RING_BUDGET_S: Final = 0.1
ALL_TO_ALL_BUDGET_S: Final = 1.0
DETOURS_BUDGET_S: Final = 5.0

PEAK_MEMORY: Final = """
import json, sys
from clustersim.apps.run.running import run

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


def deep(n_micro_batches: int) -> dict[str, object]:
    """Return GPT-1T in 64 stages."""
    return {
        "version": 1,
        "name": "deep",
        "model": "gpt-1t",
        "cluster": {"node": "dgx-a100-80g", "nodes": 64},
        "training": {"global_batch_size": n_micro_batches, "micro_batch_size": 1, "precision": "bf16"},
        "strategy": {"tp": 8, "pp": 64},
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


def test_a_slow_rank_and_a_degraded_link_among_many_are_simulated_in_time(benchmark: BenchmarkFixture) -> None:
    scenario = step_of(16_384)
    scenario["cluster"] = {
        "node": "dgx-h100",
        "nodes": 2048,
        "stragglers": [{"ranks": 5, "slowdown": 1.3}],
        "links": [{"between": ["node3/nic0", "leaf0"], "bandwidth": "100 Gbit/s"}],
    }

    benchmark.pedantic(run, (scenario,), rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), UNLIKE_BUDGET_S)


def uneven(n_gpus: int) -> dict[str, object]:
    """Return a step with a hundred slow ranks and a hundredth of all adapters at half their bandwidth, drawn at random."""
    draw, n_nodes = Random(0), n_gpus // 8
    adapters = draw.sample(range(n_gpus), n_gpus // 100)
    return step_of(n_gpus) | {
        "cluster": {
            "node": "dgx-h100",
            "nodes": n_nodes,
            "stragglers": [{"ranks": rank, "slowdown": draw.uniform(1.0, 1.3)} for rank in draw.sample(range(n_gpus), 100)],
            "links": [{"between": [f"node{each // 8}/nic{each % 8}", "leaf*"], "bandwidth": "200 Gbit/s"} for each in adapters],
        }
    }


def test_a_hundred_slow_ranks_and_many_degraded_links_are_simulated_in_time(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, (uneven(16_384),), rounds=1)

    assert held(benchmark, best_s(benchmark), RANDOM_BUDGET_S)


def test_racks_that_are_not_full_are_simulated_in_time(benchmark: BenchmarkFixture) -> None:
    scenario = {
        "version": 1,
        "name": "racks",
        "model": "nemotron4-340b",
        "cluster": {"node": "gb200-nvl72", "nodes": 64},
        "training": {"global_batch_size": 64, "micro_batch_size": 1, "seq_length": 4096, "precision": "bf16"},
        "strategy": {"tp": 8, "pp": 4, "virtual_stages": 12, "schedule": "interleaved_1f1b", "overlap_tp": "gemm_chunks"},
    }

    benchmark.pedantic(run, (scenario,), rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), RACKS_BUDGET_S)


@pytest.mark.parametrize("n_gpus", [512, 2048])
def test_experts_across_nodes_are_simulated_in_time(n_gpus: int, benchmark: BenchmarkFixture) -> None:
    scenario = {
        "version": 1,
        "name": "experts",
        "model": "grok-1",
        "cluster": {"node": "dgx-h100", "nodes": n_gpus // 8},
        "training": {"global_batch_size": 1024, "micro_batch_size": 1, "seq_length": 8192, "precision": "bf16"},
        "strategy": {"tp": 4, "pp": 8, "ep": 8},
    }

    benchmark.pedantic(run, (scenario,), rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), EXPERTS_BUDGET_S)


def test_a_deep_pipeline_of_many_micro_batches_is_simulated_in_time(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, (deep(512),), rounds=5, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), DEEP_BUDGET_S)


@pytest.mark.parametrize(
    ("strategy", "batch"),
    [
        ({"tp": 4, "pp": 2}, 128),
        ({"tp": 4, "pp": 4}, 128),
        ({"zero_stage": 3}, 128),
        ({"tp": 8, "zero_stage": 1}, 128),
    ],
    ids=["two stages", "four stages", "fully sharded", "tensor parallel"],
)
def test_small_steps_are_simulated_by_the_dozen(strategy: dict[str, object], batch: int, benchmark: BenchmarkFixture) -> None:
    training = {"global_batch_size": batch, "micro_batch_size": 1, "seq_length": 8192, "precision": "bf16"}
    cluster = {"node": "dgx-h100", "nodes": 8}
    scenario = {"version": 1, "name": "small", "model": "llama3-8b", "cluster": cluster, "training": training, "strategy": strategy}

    benchmark.pedantic(run, (scenario,), rounds=10, warmup_rounds=1)

    assert held(benchmark, 1.0 / best_s(benchmark), RUNS_PER_S, "runs/s", better="more")


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


def test_the_ways_around_many_broken_links_are_found_in_time(benchmark: BenchmarkFixture) -> None:
    broken = (("node[0-99]/nic3", "leaf*"), ("leaf[8-40]", "spine[0-3]"), ("node9/gpu*", "nvswitch"))
    changes = [LinkChange(between=between, state="down") for between in broken]
    fabric = make_fabric(nodes_per_leaf=32)

    cluster = benchmark.pedantic(build_cluster, (make_node(), 2048, fabric), {"changes": changes}, rounds=3)

    assert cluster.n_ranks == 16_384
    assert held(benchmark, best_s(benchmark), DETOURS_BUDGET_S)
