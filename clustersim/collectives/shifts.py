"""All-gathers in which every rank does the same: step by step it sends some of what it has a distance further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustersim.collectives.collective_flows import GroupExchange
from clustersim.collectives.pattern import MessageSchedule, PatternStep
from clustersim.topology.cluster import IntArray

GatherOp = Literal["all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shift:
    """Every rank sends a rank at some distance parts that came from some distances before it."""

    distance: int
    offsets: IntArray


def bruck_shifts(n: int) -> tuple[Shift, ...]:
    """Return the steps of Bruck's all-gather: a rank sends all it has, twice as far each time; the last step sends the rest.

    References
    ----------
    .. [1] J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems",
       *IEEE TPDS* 8(11), 1997.
    """
    distances = [1 << step for step in range((n - 1).bit_length())]
    return tuple(Shift(distance=far, offsets=np.arange(min(far, n - far), dtype=np.int64)) for far in distances)


def aggregated_tree_shifts(n: int) -> tuple[Shift, ...]:
    """Return the same distances from the longest down: few parts go far and many go near, one binomial tree for each part."""
    distances = [1 << step for step in reversed(range((n - 1).bit_length()))]
    return tuple(Shift(distance=far, offsets=np.arange(0, n - far, 2 * far, dtype=np.int64)) for far in distances)


def shift_exchanges(op: GatherOp, shifts: Sequence[Shift], n: int) -> list[GroupExchange]:
    """Return who sends how many parts to whom in each step; a reduce-scatter goes the ways of the all-gather back."""
    here = np.arange(n, dtype=np.int64)
    if op == "all_gather":
        return [GroupExchange(sources=here, destinations=(here + shift.distance) % n, n_parts=len(shift.offsets)) for shift in shifts]
    return [GroupExchange(sources=(here + shift.distance) % n, destinations=here, n_parts=len(shift.offsets)) for shift in reversed(shifts)]


def shift_schedule(op: GatherOp, shifts_of: Callable[[int], Sequence[Shift]], n_ranks: int) -> MessageSchedule:
    """Return the messages of an all-gather by shifts, or of its mirror image; part c belongs to rank c."""
    here = np.arange(n_ranks, dtype=np.int64)
    steps: list[PatternStep] = []
    for shift in shifts_of(n_ranks):
        low = np.repeat(here, len(shift.offsets))
        high = (low + shift.distance) % n_ranks
        chunks = (low - np.tile(shift.offsets, n_ranks)) % n_ranks
        forward = op == "all_gather"
        step = PatternStep(sources=low if forward else high, destinations=high if forward else low, chunks=chunks, reduces=not forward)
        steps.append(step)
    return MessageSchedule(n_ranks=n_ranks, n_chunks=n_ranks, steps=tuple(steps if op == "all_gather" else reversed(steps)))
