"""What a rank holds in memory from moment to moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Memory of one rank of a class, from the start of the first step to the end of the last: straight lines between moments."""

    rank_class: int
    time_s: tuple[float, ...]
    """Ascending; a moment stands there twice where memory jumps."""
    parameters_bytes: tuple[float, ...]
    gradients_bytes: tuple[float, ...]
    optimizer_bytes: tuple[float, ...]
    activations_bytes: tuple[float, ...]
    buffers_bytes: tuple[float, ...]
    """For each moment."""
    peak_at_s: float
    """When most is held for the first time."""
    peak_during: str
    """What runs then, such as ``backward pass of micro-batch 3``; empty where nothing does."""

    @property
    def total_bytes(self) -> tuple[float, ...]:
        """All that is held, for each moment."""
        parts = (self.parameters_bytes, self.gradients_bytes, self.optimizer_bytes, self.activations_bytes, self.buffers_bytes)
        return tuple(sum(sizes) for sizes in zip(*parts, strict=True))

    @property
    def peak_bytes(self) -> float:
        """The most that is held at any moment."""
        return max(self.total_bytes)
