"""Pipeline schedules: one file and one row each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.strategy.schedules.gpipe import gpipe
from clustersim.strategy.schedules.interleaved import interleaved_1f1b
from clustersim.strategy.schedules.naive import naive
from clustersim.strategy.schedules.one_f_one_b import one_f_one_b
from clustersim.strategy.schedules.order import Schedule

SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {"naive": naive, "gpipe": gpipe, "1f1b": one_f_one_b, "interleaved_1f1b": interleaved_1f1b}
)
"""Every schedule that a scenario can name."""
