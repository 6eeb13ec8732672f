"""The lower bound of a scenario's step, from the Program that is replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final

from clustersim.apps.run.replaying import Conditions, Neighbours, in_own_time_of, replay_plan
from clustersim.apps.run.simulation import breakdown_of, in_whole_steps_of
from clustersim.collection import collection_paused
from clustersim.config.build import Built
from clustersim.config.planning import rank_layout
from clustersim.engine.passes import ReplaySettings
from clustersim.hardware.calibrations import calibration_of
from clustersim.measure.bounds.bound_evaluator import BoundEvaluator
from clustersim.measure.bounds.layer_bounds import Fastest, UnitCosts
from clustersim.measure.metrics import BoundPart, BoundsReport, Breakdown, Metrics
from clustersim.parallel.flops import step_flops
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.training_plan import Strategy
from clustersim.progress import phase
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import LinkUse, Timeline
from clustersim.units.quantity import format_quantity


def evaluator_of(built: Built) -> BoundEvaluator:
    """Return the closed-form bounds of plans on the cluster of a scenario."""
    cluster, plan = built.cluster, built.plan
    nodes = [node for node, _ in cluster.kinds]
    models = tuple(kernels_of(plan.training, plan.strategy, node) for node in nodes)
    lone = not built.jobs and not built.background and not built.scenario.spec.cluster.links
    prices = UnitCosts(
        cluster=cluster,
        network=calibration_of(nodes).network,
        kernels=models[0] if len(models) == 1 else Fastest(models),
        step_host_s=min(model.calibration.launch.step_s for model in models),
        # Which paths hashing takes depends on what else is there.
        counts_traffic=lone and len(nodes) == 1 and (cluster.fabric.routing != "ecmp" or len(built.nodes) == 1),
        in_step=built.uneven is None,
    )
    return BoundEvaluator(prices=prices, chained=built.n_steps == 1 and built.uneven is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """A time below which no step can end: the longer of two."""

    path_s: float
    """Longest path through all tasks, each on links that nothing else uses, in seconds; of several steps, the mean."""
    link_s: float
    """Longest time that a link needs for its bytes at its data-sheet bandwidth, in seconds."""
    parts_s: Mapping[str, float]
    """Breakdown of the longest path, as a mean over ranks, in seconds."""

    @property
    def bound_s(self) -> float:
        """The bound, in seconds."""
        return max(self.path_s, self.link_s)


def run_bound(built: Built, seed: int = 0, alone: Timeline | None = None) -> StepBound:
    """Return the lower bound of a scenario's step: its Program, replayed without contention, unless that is given.

    The order of tasks on every lane is fixed, so shorter tasks never make a step longer; and no flow is faster than alone.
    """
    neighbours = Neighbours(nodes=built.nodes, jobs=built.jobs, background=built.background)
    settings = ReplaySettings(contends=False)
    conditions = Conditions(uneven=built.uneven, n_steps=built.n_steps, seed=seed, settings=settings)
    calibration = calibration_of([node for node, _ in built.cluster.kinds])
    with collection_paused():
        alone = alone or replay_plan(built.plan, built.cluster, calibration, neighbours, conditions).timeline
        with phase("measure"):
            own = in_own_time_of(built.plan.strategy, in_whole_steps_of(built.plan.strategy, alone))
            parts, _ = breakdown_of(built.plan.strategy, own)
    return bound_of(own.step_time_s, parts, own.links)


def bound_of(step_time_s: float, parts: Breakdown, links: Sequence[LinkUse]) -> StepBound:
    """Return the bound that a step without contention is."""
    whole = asdict(parts)
    parts_s: dict[str, float] = {**whole.pop("exposed_communication"), **whole}
    link_s = max((link.bytes / link.bandwidth_bytes_per_s for link in links), default=0.0)
    return StepBound(path_s=step_time_s, link_s=link_s, parts_s=parts_s)


def peak_s(built: Built) -> float:
    """Return the time of the FLOPs of a step at the peak of the data sheet, in seconds."""
    plan = built.plan
    flops = step_flops(plan.model, plan.training, plan.strategy)
    fastest = max(node.accelerator.peak_flops_per_s[plan.training.precision] for node, _ in built.cluster.kinds)
    return (flops.model - flops.masked) / (plan.n_ranks * fastest)


NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute": "computation",
        "tp": "tensor-parallel collectives",
        "cp": "context-parallel collectives",
        "ep": "expert-parallel collectives",
        "pp": "sends between pipeline stages",
        "dp": "the collectives of data parallelism",
        "ps": "pushes and pulls",
        "offload": "copies to and from hosts",
        "bubble": "filling and draining the pipeline",
        "stall": "waiting for other ranks",
        "optimizer": "the optimizer",
        "host": "the host",
        "link": "the fullest link",
    }
)
"""Name of each part in a sentence."""


def run_bounds(built: Built, seed: int, metrics: Metrics, timeline: Timeline, bound: StepBound | None = None) -> BoundsReport:
    """Return the bound of a run, where it is not known yet, with the sentence that names what binds."""
    # A step in which nothing was contended is its own bound.
    if not (bound or metrics.engine.events):
        bound = bound_of(metrics.step_time_s, metrics.breakdown_s, timeline.links)
    bound = bound or run_bound(built, seed, timeline.alone)
    plan, cluster, step_time_s = built.plan, built.cluster, metrics.step_time_s
    parts = [BoundPart(name=name, seconds=seconds) for name, seconds in bound.parts_s.items() if seconds > 0.0]
    largest = max(parts, key=lambda part: part.seconds)
    if bound.link_s > bound.path_s:
        largest = BoundPart(name="link", seconds=bound.link_s)
    what = f"{NAMES[largest.name]}{_where(largest.name, plan.strategy, cluster)}"
    seconds, step, least = (format_quantity(value, "s") for value in (largest.seconds, step_time_s, bound.bound_s))
    share = 100 * bound.bound_s / step_time_s
    return BoundsReport(
        bound_s=bound.bound_s,
        path_s=bound.path_s,
        link_s=bound.link_s,
        peak_s=peak_s(built),
        bound_fraction=bound.bound_s / step_time_s,
        binding=largest.name,
        binding_s=largest.seconds,
        parts=tuple(parts),
        sentence=f"no step of this layout is shorter than {least}, {share:.1f} % of {step}; {what} alone: {seconds} at least",
    )


def _where(name: str, strategy: Strategy, cluster: Cluster) -> str:
    """Return the links of the collectives of a dimension."""
    node = cluster.node
    domain_size = node.n_accelerators * node.scale_up.nodes_per_domain
    spans = {span.dimension: span for span in rank_layout(strategy, node_size=node.n_accelerators, domain_size=domain_size)}
    span = spans.get(name)
    if span is None:
        return ""
    if span.reach == "across the fabric":
        return " over the fabric"
    return " over PCIe" if node.scale_up.kind == "pcie" else " over NVLink"
