"""The least time of a scenario's step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.config.build import Built
from clustersim.config.planning import rank_layout
from clustersim.engine.uneven_ranks import division_of, jitter_of
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.mixed import calibration_of
from clustersim.measure.bounds.bound_evaluator import PATH, BoundEvaluator, StepBound
from clustersim.measure.bounds.unit_costs import Fastest, UnitCosts
from clustersim.measure.metrics import BoundPart, BoundsReport
from clustersim.parallel.flops import step_flops
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.training_plan import Strategy
from clustersim.topology.cluster import Cluster
from clustersim.units.quantity import format_quantity


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


NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "matrix units": "matrix products",
        "memory and launches": "memory traffic and kernel launches",
        "tp": "tensor-parallel collectives",
        "cp": "context-parallel collectives",
        "ep": "expert-parallel collectives",
        "host": "the host, which issues kernels",
        "sends": "sends between pipeline stages",
        "fill and drain": "filling and draining the pipeline",
        "gradients": "the reduction of the last gradients",
        "optimizer": "the optimizer, with the gathering of new weights",
        "exchange": "the collectives of data parallelism",
        "link": "the links that carry data parallelism",
    }
)
"""Name of each part in a sentence."""


@dataclass(slots=True, kw_only=True)
class LeastTime:
    """The bound of a run, computed on first access, since the bounds of most runs are not read."""

    built: Built
    seed: int
    step_time_s: float
    _report: BoundsReport | None = None

    @property
    def report(self) -> BoundsReport:
        """A time below which no step of the layout can end, and what binds."""
        if self._report is None:
            bound = run_bound(self.built, self.seed)
            self._report = bounds_report(bound, self.built, self.step_time_s)
        return self._report


def bounds_report(bound: StepBound, built: Built, step_time_s: float) -> BoundsReport:
    """Return a bound with the sentence that names what binds."""
    plan, cluster = built.plan, built.cluster
    parts = [BoundPart(name=name, seconds=seconds) for name, seconds in zip(PATH, bound.parts_s, strict=True) if seconds > 0.0]
    largest = max(parts, key=lambda part: part.seconds)
    if max(bound.exchange_s, bound.link_s) > bound.path_s:
        name = "exchange" if bound.exchange_s >= bound.link_s else "link"
        largest = BoundPart(name=name, seconds=bound.bound_s)
    what = f"{NAMES[largest.name]}{_where(largest.name, plan.strategy, cluster)}"
    seconds, step, least = (format_quantity(value, "s") for value in (largest.seconds, step_time_s, bound.bound_s))
    share = 100 * bound.bound_s / step_time_s
    flops = step_flops(plan.model, plan.training, plan.strategy)
    fastest = max(node.accelerator.peak_flops_per_s[plan.training.precision] for node, _ in cluster.kinds)
    return BoundsReport(
        bound_s=bound.bound_s,
        path_s=bound.path_s,
        exchange_s=bound.exchange_s,
        link_s=bound.link_s,
        peak_s=(flops.model - flops.masked) / (plan.n_ranks * fastest),
        bound_fraction=bound.bound_s / step_time_s,
        binding=largest.name,
        binding_s=largest.seconds,
        parts=tuple(parts),
        sentence=f"lower bound of this layout: {least}, {share:.1f} % of {step}; {what} alone: {seconds} at least",
    )


def _where(name: str, strategy: Strategy, cluster: Cluster) -> str:
    """Return over what the collectives of a dimension travel."""
    node = cluster.node
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    spans = {span.dimension: span for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size)}
    span = spans.get(name)
    if span is None:
        return ""
    if span.reach == "across the fabric":
        return " over the fabric"
    return " over PCIe" if node.scale_up.kind == "pcie" else " over NVLink"
