"""A time below which no step can end, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPart:
    """One part of the longest way through a step."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsReport:
    """The closed-form lower bound of the step time; the longest of three figures."""

    bound_s: float
    path_s: float
    """The longest way through passes, sends, reductions and updates."""
    exchange_s: float
    """The stream on which gradients meet."""
    link_s: float
    """Time of one link of an accelerator for data parallelism, in seconds."""
    peak_s: float
    """The model's FLOPs, without what a causal mask spares, at the peak of the data sheets: no software is faster."""
    bound_fraction: float
    """Share of the simulated step time; never above 1."""
    binding: str
    """The part that takes longest."""
    binding_s: float
    parts: tuple[BoundPart, ...]
    """Parts of the longest path; they add up to ``path_s``."""
    sentence: str
