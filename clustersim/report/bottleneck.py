"""One sentence on what bounds the step time and what would help first, from a small table of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.measure.metrics import Metrics
from clustersim.report.shares import Share, compute_shares, step_shares
from clustersim.trace.timeline import Timeline

SMALLEST_LOSS_FRACTION: Final = 0.05
"""A loss below this share of the step is not worth the first effort; better kernels are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    """Name of a loss in a sentence, and its remedy."""

    name: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeRule:
    """A remedy for computation itself, where its condition holds."""

    holds: Callable[[Metrics], bool]
    remedy: Callable[[Metrics], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """Bottleneck of the step time."""

    part: str
    """Key of the largest share, such as ``compute`` or ``tp``."""
    fraction: float
    """Share of the step time."""
    loss: str
    """Key of the largest share that is not computation; empty where none reaches :data:`SMALLEST_LOSS_FRACTION`."""
    loss_percent: float
    """Share of that, as reports print it."""
    opening: str
    """Bottleneck and largest loss."""
    sentence: str
    """The same with what would help first, by rule of thumb."""


LOSS_RULES: Final[Mapping[str, LossRule]] = MappingProxyType(
    {
        "tp": LossRule(name="tensor-parallel communication", remedy="A smaller tp, or faster links inside its group,"),
        "cp": LossRule(name="context-parallel communication", remedy="A smaller cp, or faster links inside its group,"),
        "ep": LossRule(name="expert-parallel communication", remedy="A smaller ep, or faster links inside its group,"),
        "pp": LossRule(name="pipeline communication", remedy="Sends that overlap computation, or fewer virtual stages,"),
        "dp": LossRule(name="data-parallel communication", remedy="Overlap with the backward pass, or more micro-batches per step,"),
        "ps": LossRule(name="parameter-server communication", remedy="More parameter servers"),
        "offload": LossRule(name="the way to the host and the optimizer there", remedy="More samples per step, or ranks on more nodes,"),
        "recompute": LossRule(name="recomputation", remedy="Less recomputation, where memory allows,"),
        "bubble": LossRule(name="the pipeline bubble", remedy="More micro-batches per step, or virtual stages,"),
        "stall": LossRule(name="waiting for slower ranks, links or data", remedy="A faster data loader, or whatever else is late,"),
        "optimizer": LossRule(name="the optimizer", remedy="More samples per step, or sharding its state over dp (zero_stage: 1),"),
        "host": LossRule(name="the host", remedy="Larger micro-batches, so that it launches fewer kernels,"),
    }
)
"""Name and remedy of each share of the step that is not computation for the first time."""

COMPUTE_RULES: Final = (
    ComputeRule(
        holds=lambda metrics: _kernel_efficiency(metrics) < 0.5,
        remedy=lambda metrics: f"A larger micro-batch (kernels reach {100 * _kernel_efficiency(metrics):.0f} % of the peak)",
    ),
    ComputeRule(holds=lambda _: True, remedy=lambda _: "A lower precision, or a faster accelerator,"),
)
"""Remedies where computation itself remains; the first that applies is taken."""


def find_bottleneck(metrics: Metrics, timeline: Timeline) -> Bottleneck:
    """Return what bounds the step time, and in a sentence what would help first; recomputation counts as a loss."""
    shares = step_shares(metrics)
    if not shares:
        still = "The step takes no time."
        return Bottleneck(part="", fraction=0.0, loss="", loss_percent=0.0, opening=still, sentence=still)
    largest = max(shares, key=_size)
    pieces = [piece for share in shares if share.key == "compute" for piece in compute_shares(share, timeline)]
    losses = [share for share in (*shares, *pieces) if share.key in LOSS_RULES and share.fraction >= SMALLEST_LOSS_FRACTION]
    loss = max(losses, key=_size, default=None)
    opening = f"Step time is bound by {_name(largest)}: {largest.percent:.1f} % of it."
    if loss is not None and loss is not largest:
        opening += f" The largest loss is {_name(loss)}: {loss.percent:.1f} %."
    return Bottleneck(
        part=largest.key,
        fraction=largest.fraction,
        loss="" if loss is None else loss.key,
        loss_percent=0.0 if loss is None else loss.percent,
        opening=opening,
        sentence=f"{opening} {_remedy(metrics, loss)} would help first.",
    )


def _remedy(metrics: Metrics, loss: Share | None) -> str:
    if loss is not None and loss.key == "stall" and metrics.steps is not None:
        waited_for = metrics.steps.waited_for
        if waited_for:
            return f"Repairing or leaving out {waited_for[0].slow or waited_for[0].name}"
    if loss is not None and loss.key == "ep" and metrics.experts is not None and metrics.experts.waited_s > 0.5 * loss.seconds:
        return f"A more even load of the experts ({metrics.experts.hot_ranks} are waited for), or more of them on each rank,"
    if loss is not None:
        return LOSS_RULES[loss.key].remedy
    return next(rule.remedy(metrics) for rule in COMPUTE_RULES if rule.holds(metrics))


def _size(share: Share) -> float:
    return share.fraction


def _name(share: Share) -> str:
    return LOSS_RULES[share.key].name if share.key in LOSS_RULES else "computation"


def _kernel_efficiency(metrics: Metrics) -> float:
    """Return the share of the peak that is reached while computing."""
    return metrics.hfu * metrics.step_time_s / metrics.breakdown_s.compute
