"""One row of the table of schedules: how its orders are made, where the model lies, and what it asks of stages and micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clustersim.parallel.schedules.order import EQUAL_COSTS, PassCosts, StageOrder
from clustersim.parallel.schedules.places import Layout, looped

ByShape = Callable[[int, int, int], tuple[StageOrder, ...]]
"""(stages, micro-batches, chunks per stage) -> one order for each stage."""

ByTimes = Callable[[int, int, PassCosts], tuple[StageOrder, ...]]
"""(stages, micro-batches, times) -> one order for each stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A pipeline schedule."""

    make: ByShape | None = None
    by_times: ByTimes | None = None
    """Instead of ``make``, for what depends on how long passes take."""
    layout: Layout = looped
    n_chunks: int | None = 1
    """Into how many chunks the layers of a stage are cut; None: into as many as are asked for, at least two."""
    splits: bool = False
    """Whether gradients of weights are computed apart from those of inputs, for which alone other stages wait."""
    validates_later: bool = False
    """Whether its implementation updates each stage before the norm of all gradients is known."""
    sends_beside: bool = True
    """Whether its implementations let sends run beside computation."""
    whole_rounds: bool = False
    """Whether micro-batches must be a multiple of the stages."""
    in_pairs: bool = False
    """Whether stages and micro-batches must be even."""
    least_rounds: int = 0
    """Least number of micro-batches, as a multiple of the stages."""

    def orders(self, n_stages: int, n_micro_batches: int, n_chunks: int, times: PassCosts = EQUAL_COSTS) -> tuple[StageOrder, ...]:
        """Return the order of passes of every stage."""
        if self.by_times is not None:
            return self.by_times(n_stages, n_micro_batches, times)
        assert self.make is not None
        return self.make(n_stages, n_micro_batches, n_chunks)
