"""Who has the hottest experts of a plan."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import numpy as np

from clustersim.report.expert_load import ExpertsReport, waited_for_experts_s
from clustersim.strategy.local_model import LocalModel
from clustersim.strategy.mesh import place
from clustersim.strategy.plan import Strategy
from clustersim.strategy.routing import Dispatch
from clustersim.strategy.sharding_groups import expert_grid
from clustersim.trace.ranks import ranks_text
from clustersim.trace.timeline import Timeline


def experts_report(local: LocalModel, strategy: Strategy, timeline: Timeline) -> ExpertsReport | None:
    """Return how tokens spread over the experts of a model; None for a model without any."""
    model = local.model
    if model.experts is None:
        return None
    layers = [layer for layer in range(model.n_layers) if model.has_experts(layer)]
    spreads = [local.expert_spread.dispatch(layer) for layer in layers]
    even = all(max(spread.rows) - min(spread.rows) <= 1 for spread in spreads)
    hottest, times = Counter(spread.hottest for spread in spreads).most_common(1)[0]
    fullest = max((spread for spread in spreads if spread.hottest == hottest), key=lambda spread: max(spread.of(hottest)))
    kept, dropped = sum(sum(spread.rows) for spread in spreads), sum(spread.dropped for spread in spreads)
    load = strategy.expert_load
    return ExpertsReport(
        load=load.file or load.kind,
        tokens_per_expert=kept / len(spreads) / model.experts.n_experts,
        hottest_expert=fullest.rows.index(max(fullest.of(hottest))),
        expert_skew=1.0 if even else fmean(map(_expert_skew, spreads)),
        rank_skew=1.0 if even else fmean(spread.skew for spread in spreads),
        hot_ranks="" if even or strategy.ep == 1 else _ranks_at(strategy, hottest),
        hot_layers_fraction=1.0 if even else times / len(spreads),
        dropped_fraction=dropped / (kept + dropped),
        waited_s=waited_for_experts_s(timeline),
    )


def _expert_skew(spread: Dispatch) -> float:
    return max(spread.rows) * len(spread.rows) / sum(spread.rows)


def _ranks_at(strategy: Strategy, place_of_experts: int) -> str:
    mesh = place(strategy)
    grids = (expert_grid(strategy, mesh, stage) for stage in range(strategy.pp))
    return ranks_text(np.concatenate([grid[:, place_of_experts].reshape(-1) for grid in grids]))
