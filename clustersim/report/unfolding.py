"""Unfold a pass into its layers, and layers into computation and collectives, in steps of 125 nanoseconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clustersim.trace.timeline import Span


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch inside a span; either a whole repetition of a block or one of its parts."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    bytes: float = 0.0
    flops: float = 0.0


STEP_NS: Final = 125
"""An eighth of a microsecond: times in microseconds are then binary fractions, and viewers add start and duration without error."""


def to_ns(seconds: float) -> int:
    """Return nanoseconds in whole steps; what ends before another thing starts does so in steps too."""
    return round(seconds * 1e9 / STEP_NS) * STEP_NS


def category_of(kind: str, dimension: str) -> str:
    """Return the comma-separated trace categories of a span or slice."""
    return f"{kind},{dimension}" if dimension else kind


def n_slices(span: Span) -> int:
    """Return how many slices :func:`unfolded` yields at most."""
    return sum(block.repeat * (1 + len(block.slices)) for block in span.detail)


def unfolded(span: Span) -> Iterator[Slice]:
    """Yield the repetitions of every block of a span, each followed by its parts.

    The parts keep their own durations, so that what the pass waited for beyond them shows as a gap at its end; where they
    are longer than the span, all are shortened alike to fit into it. What takes no time, such as a collective that is hidden to its
    end, is no slice: viewers lose the nesting over slices that end where they start.
    """
    inner_s = math.fsum(block.repeat * part.duration_s for block in span.detail for part in block.slices)
    length_s = span.end_s - span.start_s
    scale = length_s / inner_s if inner_s > length_s else 1.0
    last_ns = to_ns(span.end_s)
    at_s = span.start_s
    for block in span.detail:
        for repetition in range(block.repeat):
            parts: list[Slice] = []
            start_ns = end_ns = min(to_ns(at_s), last_ns)
            for part in block.slices:
                at_s += part.duration_s * scale
                part_ns, end_ns = end_ns, min(to_ns(at_s), last_ns)
                if end_ns > part_ns:
                    parts.append(Slice(part.name, category_of(part.kind, part.dimension), part_ns, end_ns, part.bytes, part.flops))
            name = block.name if block.repeat == 1 else f"{block.name} {repetition}"
            if parts:
                yield Slice(name, span.kind, start_ns, end_ns)
                yield from parts
