"""Passes through the parts of a model, from the prices of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from clustersim.measure.bounds.layer_bounds import LayerPrices, PassName
from clustersim.measure.bounds.unit_costs import EXPOSED, ISSUE
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.topology.cluster import FloatArray

Key = tuple[object, ...]


def cut_key(plan: Plan) -> Key:
    """Return what passes of a plan depend on: how the model is cut, and where those are that work together on a layer."""
    strategy, experts = plan.strategy, plan.model.experts
    own = (
        id(plan.model),
        plan.training.changed(global_batch_size=0),
        (strategy.tp, strategy.cp, strategy.ep, strategy.etp, strategy.sequence_parallel),
        (strategy.recompute, strategy.recompute_modules, strategy.recompute_stops_early),
        (strategy.overlap_tp, strategy.overlap_ep, strategy.dispatch, strategy.dispatch_precision, strategy.context_parallel),
    )
    together = strategy.tp * strategy.cp
    if experts is None and strategy.placement[:2] == ("tp", "cp") and strategy.domain_size % together == 0:
        return own
    return (*own, strategy.placement, strategy.dp, strategy.pp, strategy.zero_stage, strategy.expert_load)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPasses:
    """Passes through each part of the model; each figure has one entry for each part."""

    rows: FloatArray
    """Forward and back together, shape (n_parts, WIDTH)."""
    forward_s: FloatArray
    backward_s: FloatArray
    trip_s: float
    """Time of a micro-batch forward through all parts and back to the first, in seconds."""
    more_s: FloatArray
    """Further wait of both passes, in seconds, when the stage before has long been done."""
    meets: bool
    """Whether two passes may run at once."""
    waits_behind: bool
    """Whether a stage ends with a pass for which others wait: not so where gradients of weights may come last."""


def part_passes(strategy: Strategy, layers: LayerPrices, counts: Sequence[int]) -> PartPasses:
    """Return the passes through each part of a model, which have so many layers each.

    Where schedules may put gradients of weights off, the shorter of both ways to go back counts. Where two passes run at once, each is
    taken to hide all collectives of the other.
    """
    prices = layers.prices
    schedule = None if strategy.written else SCHEDULES[strategy.schedule]
    stops = np.array(list(accumulate(counts)), dtype=np.int64)
    starts = np.concatenate(([0], stops[:-1]))
    borders = stops if strategy.recompute_layers is None else np.minimum(stops, starts + strategy.recompute_layers)

    def through(kind: PassName, again: PassName | None = None) -> FloatArray:
        sums, (first, last) = layers.sums(kind), layers.ends(kind)
        rows = sums[stops] - sums[borders if again else starts]
        if again:
            repeated = layers.sums(again)
            rows = rows + repeated[borders] - repeated[starts]
        rows[0] += first
        rows[-1] += last
        return rows

    forward = through("F")
    backward = through("B", "again" if strategy.recompute != "none" else None)
    meets = schedule is None or schedule.in_pairs or strategy.schedule == "dualpipe_v"
    if meets:
        forward[:, EXPOSED:ISSUE] = backward[:, EXPOSED:ISSUE] = 0.0
    forward_s, backward_s = prices.pass_s(forward), prices.pass_s(backward)
    returned_s, splits = backward_s, schedule is None or schedule.splits
    if splits:
        inputs = through("I", "I again" if strategy.recompute != "none" else None)
        weights = through("W")
        if meets:
            inputs[:, EXPOSED:ISSUE] = weights[:, EXPOSED:ISSUE] = 0.0
        inputs_s = prices.pass_s(inputs)
        returned_s = np.minimum(backward_s, inputs_s)
        backward_s = np.minimum(backward_s, inputs_s + prices.pass_s(weights))
    return PartPasses(
        rows=forward + backward,
        forward_s=forward_s,
        backward_s=backward_s,
        trip_s=float((forward_s + returned_s).sum()),
        more_s=np.zeros(len(counts)),
        meets=meets,
        waits_behind=not splits,
    )
