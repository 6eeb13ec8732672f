"""What the schedule of a plan says: which part of the model is where, and in which order each stage works."""

from __future__ import annotations

from functools import lru_cache

from clustersim.strategy.plan import Plan, Strategy
from clustersim.strategy.schedules import SCHEDULES
from clustersim.strategy.schedules.order import PassCosts, StageOrder
from clustersim.strategy.schedules.places import Places


def places_of(strategy: Strategy) -> Places:
    """Return which part of the model each chunk of each stage holds."""
    if strategy.written is not None:
        return strategy.written.places
    return _places(strategy.schedule, strategy.pp, strategy.virtual_stages)


def orders_of(plan: Plan) -> tuple[StageOrder, ...]:
    """Return the order of passes of every stage; lowering and memory ask for the same one."""
    strategy = plan.strategy
    if strategy.written is not None:
        return strategy.written.orders
    return _orders(strategy.schedule, strategy.pp, plan.n_micro_batches, strategy.virtual_stages, strategy.costs)


@lru_cache(maxsize=8)
def _places(schedule: str, n_stages: int, n_chunks: int) -> Places:
    return SCHEDULES[schedule].layout(n_stages, n_chunks)


@lru_cache(maxsize=8)
def _orders(schedule: str, n_stages: int, n_micro_batches: int, n_chunks: int, costs: PassCosts) -> tuple[StageOrder, ...]:
    return SCHEDULES[schedule].orders(n_stages, n_micro_batches, n_chunks, costs)
