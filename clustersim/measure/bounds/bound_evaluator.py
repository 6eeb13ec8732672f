"""Lower bounds of plans by their passes alone, in closed form: the first cut of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from clustersim.measure.bounds.layer_bounds import Key, LayerPrices, PartPasses, PassName, cut_key, part_passes
from clustersim.measure.bounds.pipeline_bounds import lanes, ways_of, ways_of_schedule
from clustersim.measure.bounds.unit_costs import COMPUTE, EXPOSED, WIDTH, UnitCosts
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.stages import part_layers, places_of
from clustersim.parallel.training_plan import Plan
from clustersim.topology import SYMMETRIC

WHOLE_PASSES: Final = tuple(name for name, schedule in SCHEDULES.items() if not schedule.splits)
"""Schedules in which nothing of a pass is put off."""

ROUND_OFF: Final = 1e-9
"""Relative error of a sum of durations, far above that of a million of them in any order."""


@dataclass(slots=True, kw_only=True)
class BoundEvaluator:
    """Lower bounds of steps on one cluster, whatever they do with gradients, weights and optimizer states."""

    prices: UnitCosts
    chained: bool = True
    """False where steps overlap: only the time that each stage is busy counts."""
    _layers: dict[Key, LayerPrices] = field(default_factory=dict[Key, LayerPrices])
    _passes: dict[Key, PartPasses] = field(default_factory=dict[Key, PartPasses])

    def mean_s(self, plan: Plan) -> float:
        """Return the mean computation of the stages, a lower bound for the busiest for any division of layers."""
        strategy = plan.strategy
        _, layers = self._layer_prices(plan)
        back: tuple[PassName, ...] = ("F", "again" if strategy.recompute == "full" else "B")
        rows = sum((layers.sums(kind)[-1] + layers.ends(kind)[0] + layers.ends(kind)[1] for kind in back), np.zeros(WIDTH))
        if strategy.recompute == "full" and strategy.recompute_layers is not None:
            rows = rows - layers.sums("again")[-1] + layers.sums("B")[-1]
        exposed_s = float(rows[EXPOSED]) if strategy.schedule in WHOLE_PASSES else 0.0
        device_s = float(rows[COMPUTE]) + exposed_s
        return (self.prices.step_host_s + plan.n_micro_batches * device_s / strategy.pp) * (1.0 - ROUND_OFF)

    def _layer_prices(self, plan: Plan) -> tuple[Key, LayerPrices]:
        """Return the prices of layers, and what they depend on: without a symmetric scale-up wiring, on the place of every stage too."""
        strategy, symmetric = plan.strategy, self.prices.cluster.node.scale_up.kind in SYMMETRIC
        cut = cut_key(plan) if symmetric else (*cut_key(plan), strategy.placement, strategy.dp, strategy.pp)
        found = self._layers.get(cut)
        if found is None:
            found = self._layers[cut] = LayerPrices(prices=self.prices, plan=plan, name=f"cut {len(self._layers)}")
        return cut, found

    def passes_s(self, plan: Plan) -> float:
        """Return a time below which no step of a plan can end, in seconds.

        A stage fills, does all of its passes, and drains; or a micro-batch goes through all stages and back.
        """
        strategy, written = plan.strategy, plan.strategy.written
        ways = ways_of(written.places) if written else ways_of_schedule(strategy.schedule, strategy.pp, strategy.virtual_stages)
        places = places_of(strategy)
        times = np.array([len(places.micro_batches(way, plan.n_micro_batches)) for way in range(places.n_copies)], dtype=np.float64)
        cut, layers = self._layer_prices(plan)
        key = (*cut, (strategy.schedule, strategy.pp, strategy.virtual_stages, strategy.stage_layers, strategy.recompute_layers))
        passes = self._passes.get(key)
        if passes is None:
            counts = part_layers(strategy, plan.model.n_layers, ways.stage_of.shape[1])
            passes = self._passes[key] = part_passes(strategy, layers, counts)
        found = lanes(ways, (passes.forward_s, passes.backward_s), times)
        if self.chained and not strategy.optimizer_post_validation:
            least_s = float((found.fill_s + found.busy_s + (found.drain_s if passes.waits_behind else 0.0)).max())
        else:
            least_s = max(float(found.busy_s.max()), passes.trip_s if self.chained else 0.0)
        return (self.prices.step_host_s + least_s) * (1.0 - ROUND_OFF)
