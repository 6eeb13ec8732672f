"""Memory held by a rank from moment to moment, in bytes, drawn out when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from clustersim.trace.lazy_sequence import LazySequence
from clustersim.trace.step_log import Repetition

STACK: Final = ("parameters", "optimizer", "gradients", "buffers", "activations")
"""Contents of memory from below: what changes most stands highest."""


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
    """Task that runs then, such as ``backward pass of micro-batch 3``; empty where nothing does."""

    @property
    def total_bytes(self) -> tuple[float, ...]:
        """All that is held, for each moment."""
        return tuple(sum(sizes) for sizes in zip(*self.parts_bytes.values(), strict=True))

    @property
    def parts_bytes(self) -> Mapping[str, tuple[float, ...]]:
        """Memory by its content, for each moment."""
        return {
            "parameters": self.parameters_bytes,
            "gradients": self.gradients_bytes,
            "optimizer": self.optimizer_bytes,
            "activations": self.activations_bytes,
            "buffers": self.buffers_bytes,
        }

    @property
    def peak_bytes(self) -> float:
        """The most that is held at any moment."""
        return max(self.total_bytes)


class Curves(LazySequence[MemoryCurve]):
    """The curves of all classes; those of a timeline with repetitions are drawn out when they are looked at."""

    def __init__(self, written: tuple[MemoryCurve, ...], repetition: Repetition | None = None) -> None:
        """Evaluate curves over the columns of a timeline."""
        self.written = written
        """With what repeats once; the moments of their peaks are those of the whole timeline."""
        self.repetition = repetition

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.written)

    def make(self) -> tuple[MemoryCurve, ...]:
        """Return the curves with all repetitions."""
        again = self.repetition
        return self.written if again is None else tuple(_drawn_out(curve, again) for curve in self.written)


def _drawn_out(curve: MemoryCurve, again: Repetition) -> MemoryCurve:
    """Return a curve with all repetitions; it is as high at the end of one as at its start."""
    first = [place for place, at_s in enumerate(curve.time_s) if at_s < again.end_s]
    inside = [place for place in first if curve.time_s[place] >= again.start_s]
    rest = range(len(first), len(curve.time_s))
    rows = [(0, first), *((number, inside) for number in range(1, again.times + 1)), (again.times, rest)]
    time_s = tuple(curve.time_s[place] + number * again.period_s for number, places in rows for place in places)
    sizes = [each.name for each in fields(curve) if each.name.endswith("_bytes")]
    columns = {name: getattr(curve, name) for name in sizes}
    return replace(
        curve, time_s=time_s, **{name: tuple(column[place] for _, places in rows for place in places) for name, column in columns.items()}
    )
