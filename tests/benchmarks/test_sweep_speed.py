"""A sweep of 500 points uses both cores."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.apps.study.pools import local_pool, usable_cores
from clustersim.apps.study.study_file import StudyRequest
from clustersim.apps.study.sweep import run_sweep
from clustersim.apps.study.sweep_question import asked_sweep
from tests.benchmarks.claims import best_s, held

N_POINTS: Final = 500
SPEED_UP: Final = 1.6
"""Least, where two cores are free; the start of the processes is part of it."""
OVER: Final = ("training.global_batch_size=512..4480 step 32", "strategy.tp=4,8", "strategy.pp=2,4")


@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_two_processes_sweep_faster_than_one(benchmark: BenchmarkFixture) -> None:
    question = asked_sweep("llama3-70b-h100-512", StudyRequest(over=OVER))
    assert len(question.points) == N_POINTS
    began_s = perf_counter()
    run_sweep(question, lambda _: local_pool(1), folder=None)
    alone_s = perf_counter() - began_s

    benchmark.pedantic(run_sweep, (question, lambda _: local_pool(2)), {"folder": None}, rounds=1)

    assert held(benchmark, alone_s / best_s(benchmark), SPEED_UP, "", better="more")
