"""The bound of a run in words: what binds, and how near the step comes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.apps.run.bound import run_bound
from clustersim.config.build import Built
from clustersim.config.planning import rank_layout
from clustersim.measure.bounds.bound_evaluator import PATH, StepBound
from clustersim.measure.metrics import BoundPart, BoundsReport
from clustersim.parallel.flops import step_flops
from clustersim.parallel.training_plan import Strategy
from clustersim.topology.cluster import Cluster
from clustersim.units.quantity import format_quantity

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
    """The bound of a run, which is worked out when it is first asked for: many runs are made whose bounds nobody reads."""

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
