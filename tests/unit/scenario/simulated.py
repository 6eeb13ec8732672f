"""Runs of small plans, for the tests of what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from clustersim.hardware.catalog import load_node
from clustersim.report.metrics import Flag, Metrics
from clustersim.scenario.simulate import simulate
from clustersim.strategy.plan import Plan
from clustersim.topology.build import build_cluster
from clustersim.topology.wired import WiredCluster
from clustersim.trace.timeline import Timeline
from tests.unit.strategy.factories import LLAMA, make_plan


@cache
def cluster_of(node: str, n_nodes: int) -> WiredCluster:
    return build_cluster(load_node(node), n_nodes)


def run(plan: Plan, node: str = "dgx-a100-80g", *, flags: Sequence[Flag] = ()) -> tuple[Metrics, Timeline]:
    return simulate(plan, cluster_of(node, max(1, plan.n_ranks // 8)), name="a run", flags=flags)


def metrics_of(plan: Plan, node: str = "dgx-a100-80g") -> Metrics:
    return run(plan, node)[0]


def codes(metrics: Metrics) -> list[str]:
    return [flag.code for flag in metrics.flags]


PLAN = make_plan(LLAMA, dp=2, tp=2, pp=4, recompute="full", global_batch_size=32)
