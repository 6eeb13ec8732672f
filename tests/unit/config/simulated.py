"""Runs of small plans, for the tests of what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from clustersim.apps.run.simulation import simulate
from clustersim.hardware.catalog import load_node
from clustersim.measure.metrics import Metrics
from clustersim.notices import Flag
from clustersim.parallel.training_plan import Plan
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import Timeline
from tests.unit.parallel.factories import LLAMA, make_plan


@cache
def cluster_of(node: str, n_nodes: int) -> Cluster:
    return build_cluster(load_node(node), n_nodes)


def run(plan: Plan, node: str = "dgx-a100-80g", *, flags: Sequence[Flag] = ()) -> tuple[Metrics, Timeline]:
    return simulate(plan, cluster_of(node, max(1, plan.n_ranks // 8)), name="a run", flags=flags)


def metrics_of(plan: Plan, node: str = "dgx-a100-80g") -> Metrics:
    return run(plan, node)[0]


def codes(metrics: Metrics) -> list[str]:
    return [flag.code for flag in metrics.flags]


PLAN = make_plan(LLAMA, dp=2, tp=2, pp=4, recompute="full", global_batch_size=32)
