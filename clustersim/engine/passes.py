"""Settings of a replay, and the passes that make it shorter and leave its result as it is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Passes that a replay may use; each can be switched off."""

    fold: bool = True
    """One rank class represents all ranks, groups and links that behave alike."""
    collapse: bool = True
    """Uncontended tasks take their known duration without an event."""
    repeat: bool = True
    """A period of micro-batches or of steps that repeats is replayed once."""


ALL_PASSES: Final = Passes()
"""All passes, the default of a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings of the replay of a step."""

    passes: Passes = ALL_PASSES
    """Passes that the replay may use."""
    contends: bool = True
    """False for a lower bound: every flow has the rate that it has alone, so a step is its longest path."""
    varies: bool = True
    """Whether to look for the spread of a contended step, which is replayed again for it, and to keep the step without contention."""
    links: bool = True
    """Whether to compute what links carried."""
    limit_s: float = inf
    """Step time without contention from which on contention is left out, because the bound is long enough."""
    regard: str = "all"
    """Links that may tell ranks apart, as ``EngineStats.told_apart``; fewer where all take too many tasks."""


USUAL: Final = ReplaySettings()
"""Settings of a replay that is told in full."""
