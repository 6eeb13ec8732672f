"""What must be fast, with its budget: the best of several rounds, because other programs only ever make it slower."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

import clustersim
from clustersim.scenario.run import run

HELP_BUDGET_S: Final = 0.25
DEMO_BUDGET_S: Final = 2.0


def best_s(benchmark: BenchmarkFixture) -> float:
    """Return the shortest round of what was timed."""
    assert benchmark.stats is not None
    return min(float(seconds) for seconds in benchmark.stats.stats.data)


def test_help_starts_at_once(benchmark: BenchmarkFixture) -> None:
    command = [sys.executable, "-m", "clustersim", "--help"]

    benchmark.pedantic(subprocess.run, (command,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=7, warmup_rounds=1)

    assert best_s(benchmark) <= HELP_BUDGET_S


def test_the_demo_is_simulated_in_two_seconds(benchmark: BenchmarkFixture) -> None:
    assert clustersim.run is run  # imports are not timed

    benchmark.pedantic(clustersim.run, ("llama3-70b-h100-512",), rounds=3, warmup_rounds=0)

    assert best_s(benchmark) <= DEMO_BUDGET_S
