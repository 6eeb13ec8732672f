"""The least time of a scenario's step."""

from __future__ import annotations

from clustersim.config.build import Built
from clustersim.engine.uneven_ranks import division_of, jitter_of
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.mixed import calibration_of
from clustersim.measure.bounds.bound_evaluator import BoundEvaluator, StepBound
from clustersim.measure.bounds.unit_costs import Fastest, UnitCosts
from clustersim.parallel.pass_costs import kernels_of


def evaluator_of(built: Built, *, pace: float = 1.0) -> BoundEvaluator:
    """Return what gives least times of plans on the cluster of a scenario.

    Parameters
    ----------
    pace
        How many times as long as usual computation takes at least.
    """
    cluster, plan = built.cluster, built.plan
    nodes = [node for node, _ in cluster.kinds]
    models = tuple(kernels_of(plan.training, plan.strategy, node.accelerator, calibration_for(node.accelerator)) for node in nodes)
    lone = not built.jobs and not built.background and not built.scenario.spec.cluster.links
    prices = UnitCosts(
        cluster=cluster,
        network=calibration_of(nodes).network,
        kernels=models[0] if len(models) == 1 else Fastest(models),
        step_host_s=min(model.calibration.launch.step_s for model in models),
        # Which paths hashing takes depends on what else is there.
        counts_traffic=lone and len(nodes) == 1 and (cluster.fabric.routing != "ecmp" or len(built.nodes) == 1),
        in_step=built.uneven is None,
        pace=pace,
    )
    return BoundEvaluator(prices=prices, chained=built.n_steps == 1 and built.uneven is None)


def run_bound(built: Built, seed: int = 0) -> StepBound:
    """Return a time below which no step of a scenario can end."""
    return evaluator_of(built, pace=_least_pace(built, seed)).bound(built.plan)


def _least_pace(built: Built, seed: int) -> float:
    """Return how many times as long as usual the computation of a step takes at least, where it varies."""
    if built.uneven is None or built.uneven.jitter is None:
        return 1.0
    division = division_of(built.plan.strategy, built.uneven, has_experts=built.plan.model.experts is not None)
    jitter = jitter_of(division, built.uneven, seed)
    if jitter is None:
        return 1.0
    n_classes = division.n_stages * division.n_parts
    return min((jitter.factor(each, step) for each in range(n_classes) for step in range(built.n_steps)), default=1.0)
