"""A schedule that was read from a file."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.strategy.schedules.order import StageOrder
from clustersim.strategy.schedules.places import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSchedule:
    """Orders of passes, and where the model lies for them."""

    places: Places
    orders: tuple[StageOrder, ...]
    text: str
    """As PyTorch writes it."""
