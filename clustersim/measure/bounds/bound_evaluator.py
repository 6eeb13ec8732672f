"""Lower bounds of plans by their passes alone, in closed form: the first cut of a search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np

from clustersim.measure.bounds.layer_bounds import (
    COMPUTE,
    WIDTH,
    Key,
    LayerPrices,
    PartPasses,
    PassName,
    UnitCosts,
    again_key,
    cut_key,
    own_key,
    part_passes,
)
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.places import Places
from clustersim.parallel.stages import part_layers, places_of
from clustersim.parallel.training_plan import Plan
from clustersim.topology import SYMMETRIC
from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlacement:
    """Stages of the parts of a model, as arrays."""

    stage_of: IntArray
    """Shape (n_ways, n_parts)."""
    n_stages: int


def ways_of(places: Places) -> ChunkPlacement:
    """Return places as arrays."""
    stage_of = np.array([[stage for stage, _ in route] for route in places.routes], dtype=np.int64)
    return ChunkPlacement(stage_of=stage_of, n_stages=places.n_stages)


@lru_cache(maxsize=512)
def ways_of_schedule(schedule: str, n_stages: int, n_chunks: int) -> ChunkPlacement:
    """Return where a schedule puts the parts of a model."""
    return ways_of(SCHEDULES[schedule].layout(n_stages, n_chunks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Times by stage, in seconds."""

    fill_s: FloatArray
    """Before its first pass can begin, something must have gone through others."""
    busy_s: FloatArray
    """All of its passes."""
    drain_s: FloatArray
    """Behind its last pass, something has to go through others."""


def lanes(ways: ChunkPlacement, passes: tuple[FloatArray, FloatArray], times: FloatArray) -> Lanes:
    """Return start, busy time and drain of the stages.

    The first pass of a stage waits until a micro-batch has gone forward through all parts of the model before one of the stage's, and
    behind its last one a gradient goes back through them::

        T >= fill + sum of all passes + drain

    Parameters
    ----------
    passes
        Seconds of passes forward and back through each part of the model, each of shape (n_parts,).
    times
        Number of micro-batches that go each way.
    """
    forward_s, backward_s = passes
    stage_of, n_stages = ways.stage_of, ways.n_stages
    flat = stage_of.reshape(-1)
    fill_s, drain_s = np.full(n_stages, np.inf), np.full(n_stages, np.inf)
    for first_s, each_s in ((fill_s, forward_s), (drain_s, backward_s)):
        before_s = np.concatenate(([0.0], each_s[:-1].cumsum()))
        np.minimum.at(first_s, flat, np.broadcast_to(before_s, stage_of.shape).reshape(-1))
    own_s = (forward_s + backward_s)[None] * times[:, None]
    busy_s = np.bincount(flat, weights=own_s.reshape(-1), minlength=n_stages).astype(np.float64)
    return Lanes(fill_s=fill_s, busy_s=busy_s, drain_s=drain_s)


ROUND_OFF: Final = 1e-9
"""Relative error of a sum of durations, far above that of a million of them in any order."""


@dataclass(slots=True, kw_only=True)
class BoundEvaluator:
    """Lower bounds of steps on one cluster, whatever they do with gradients, weights and optimizer states."""

    prices: UnitCosts
    chained: bool = True
    """False where steps overlap: only the time that each stage is busy counts."""
    _computed: UnitCosts = field(init=False)
    """The same without any traffic."""
    _layers: dict[Key, LayerPrices] = field(default_factory=dict[Key, LayerPrices])
    _passes: dict[Key, PartPasses] = field(default_factory=dict[Key, PartPasses])

    def __post_init__(self) -> None:
        """Prepare prices of computation alone, which need no groups of ranks."""
        self._computed = replace(self.prices, counts_traffic=False)

    def mean_s(self, plan: Plan) -> float:
        """Return the mean computation of the stages, a lower bound for the busiest for any division of layers."""
        strategy = plan.strategy
        key = ("computed", *own_key(plan))
        layers = self._layers.get(key) or self._layers.setdefault(key, LayerPrices(prices=self._computed, plan=plan, name="computed"))
        back: tuple[PassName, ...] = ("F", "again" if strategy.recompute == "full" else "B")
        rows = sum((layers.sums(kind, strategy)[-1] + layers.ends(kind)[0] + layers.ends(kind)[1] for kind in back), np.zeros(WIDTH))
        if strategy.recompute == "full" and strategy.recompute_layers is not None:
            rows = rows - layers.sums("again", strategy)[-1] + layers.sums("B", strategy)[-1]
        return (self.prices.step_host_s + plan.n_micro_batches * float(rows[COMPUTE]) / strategy.pp) * (1.0 - ROUND_OFF)

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
        order = strategy.schedule, strategy.pp, strategy.virtual_stages, strategy.stage_layers
        key = (*cut, order, again_key(strategy), strategy.recompute_layers)
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
