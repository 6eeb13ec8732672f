"""Bounds of many layouts in a second."""

from __future__ import annotations

from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.space import families, layouts
from tests.benchmarks.claims import best_s, held

N_PLANS: Final = 2000
BUDGET_S: Final = 1.0


def test_two_thousand_layouts_are_bounded_in_a_second(benchmark: BenchmarkFixture) -> None:
    limits = ["pp=1,2,4,8", "cp=1", "schedule=1f1b,interleaved_1f1b", "offload=none"]
    asked = asked_of("llama3-70b", "dgx-h100", nodes=64, overrides=["training.global_batch_size=1024"], limits=limits)
    drafts = Drafts(asked.base)
    every = [layout for family in families(asked.space) for layout in layouts(asked.space, family)][:N_PLANS]
    plans = [plan for plan in map(drafts.whole_plan, every) if not isinstance(plan, str)]
    evaluator = drafts.evaluator()

    # What plans have in common is priced in the first round.
    benchmark.pedantic(lambda: [evaluator.passes_s(plan) for plan in plans], rounds=3, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), BUDGET_S * len(plans) / N_PLANS)
