"""Memory that all techniques hold on one rank of a stage, and the peak of all together."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from clustersim.parallel.contributors import CONTRIBUTORS
from clustersim.parallel.schedules.order import StageOrder, order_tasks
from clustersim.parallel.stage import Stage
from clustersim.program.holds import Hold, MemoryPlace, held_over

ALLOCATOR_FRACTION: Final = 0.065
"""Memory that PyTorch's caching allocator reserved beyond the peak of what was allocated, as a share of that peak: the largest of four
layouts of a Llama on B200 (MooreThreads SimuMax 1.2, ``docs/b200/b200_release_v1.2_summary.json``), where the others had 0.03."""


def stage_peak(stage: Stage, *, place: MemoryPlace = "accelerator", order: StageOrder | None = None) -> tuple[Hold, ...]:
    """Return what is held in one place for a rank of a stage when most is, each hold with all its bytes at that moment.

    Parameters
    ----------
    order
        Of the passes; the one of the schedule when left out.
    """
    return held_over(stage_holds(stage, place), order_tasks(stage.order if order is None else order)).peak()


def stage_holds(stage: Stage, place: MemoryPlace = "accelerator") -> tuple[Hold, ...]:
    """Return what all techniques hold in one place for a rank of a stage."""
    return tuple(hold for hold in _all_holds(stage) if hold.place == place)


@lru_cache(maxsize=128)
def _all_holds(stage: Stage) -> tuple[Hold, ...]:
    applied = (contributor for contributor in CONTRIBUTORS if contributor.applies(stage.strategy))
    return tuple(hold for contributor in applied for hold in contributor.holds(stage))
