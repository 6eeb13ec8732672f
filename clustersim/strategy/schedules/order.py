"""What a pipeline schedule is: for each stage, an order of passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of one micro-batch through one model chunk of a stage."""

    backward: bool
    micro_batch: int
    chunk: int = 0


StageOrder = tuple[Pass, ...]

Schedule = Callable[[int, int, int], tuple[StageOrder, ...]]
"""(stages, micro-batches, chunks per stage) -> one order for each stage."""


def forward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a forward pass."""
    return Pass(backward=False, micro_batch=micro_batch, chunk=chunk)


def backward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a backward pass."""
    return Pass(backward=True, micro_batch=micro_batch, chunk=chunk)


def peak_in_flight(order: StageOrder, chunk_bytes: Sequence[float]) -> float:
    """Return the most that is kept at once when each pass (micro-batch, chunk) keeps ``chunk_bytes[chunk]`` from F to B.

    Examples
    --------
    >>> peak_in_flight((forward(0), forward(1), backward(0), backward(1)), [1.0])
    2.0
    """
    kept = peak = 0.0
    for step in order:
        kept += -chunk_bytes[step.chunk] if step.backward else chunk_bytes[step.chunk]
        peak = max(peak, kept)
    return peak
