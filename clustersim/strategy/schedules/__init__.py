"""Pipeline schedules: one file and one row each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from clustersim.strategy.schedules.gpipe import gpipe
from clustersim.strategy.schedules.interleaved import interleaved_1f1b
from clustersim.strategy.schedules.naive import naive
from clustersim.strategy.schedules.one_f_one_b import one_f_one_b
from clustersim.strategy.schedules.order import Schedule, StageOrder

SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {"naive": naive, "gpipe": gpipe, "1f1b": one_f_one_b, "interleaved_1f1b": interleaved_1f1b}
)
"""Every schedule that a scenario can name."""


@lru_cache(maxsize=2)
def stage_orders(schedule: str, n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of passes of every stage; lowering and memory ask for the same one."""
    return SCHEDULES[schedule](n_stages, n_micro_batches, n_chunks)
