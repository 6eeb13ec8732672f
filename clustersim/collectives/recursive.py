"""All-gather by recursive doubling, or by Bruck's algorithm where ranks are no power of two; reduce-scatter goes back the same way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import NOTHING, GroupExchange, exchanged
from clustersim.collectives.halving_doubling import doubling_steps, halving_steps
from clustersim.collectives.pattern import Algorithm, Grouping, MessageSchedule, Pattern
from clustersim.collectives.shifts import GatherOp, bruck_shifts, shift_exchanges, shift_schedule
from clustersim.topology.cluster import Cluster


def lay_recursive(op: GatherOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return an all-gather in ``ceil(log2 n)`` steps, a phase each, or the reduce-scatter that mirrors it.

    With a power of two of ranks, partners exchange all they have, first at distance n/2 and last with their neighbours, when it is
    S/2: the order of the distances is free, and in this one most bytes go the shortest way. Any other number goes by Bruck's
    algorithm, whose distances grow with what is sent.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
       *IJHPCA* 19(1), 2005, section 4.1.
    """
    n = group.size
    if n == 1:
        return NOTHING
    exchanges = shift_exchanges(op, bruck_shifts(n), n) if n & (n - 1) else _partner_exchanges(op, n)
    phases = tuple((exchanged(cluster, group, [exchange], 1 / n),) for exchange in exchanges)
    return Pattern(phases=phases, uniform=group.per_domain > 0)


def recursive_schedule(op: GatherOp, n_ranks: int) -> MessageSchedule:
    """Return the messages of an all-gather or reduce-scatter in ``ceil(log2 n)`` steps; part c belongs to rank c."""
    if n_ranks & (n_ranks - 1):
        return shift_schedule(op, bruck_shifts, n_ranks)
    steps_of = doubling_steps if op == "all_gather" else halving_steps
    return MessageSchedule(n_ranks=n_ranks, n_chunks=n_ranks, steps=tuple(steps_of(np.arange(n_ranks, dtype=np.int64))))


def _partner_exchanges(op: GatherOp, n: int) -> list[GroupExchange]:
    here = np.arange(n, dtype=np.int64)
    distances = [1 << step for step in range(n.bit_length() - 1)]
    if op == "all_gather":
        distances.reverse()
    return [GroupExchange(sources=here, destinations=here ^ far, n_parts=n // 2 // far) for far in distances]


RECURSIVE: Final[Mapping[GatherOp, Algorithm]] = MappingProxyType(
    {
        "all_gather": Algorithm(
            name="recursive", lay=partial(lay_recursive, "all_gather"), schedule=partial(recursive_schedule, "all_gather")
        ),
        "reduce_scatter": Algorithm(
            name="recursive", lay=partial(lay_recursive, "reduce_scatter"), schedule=partial(recursive_schedule, "reduce_scatter")
        ),
    }
)
"""Recursive doubling and halving, for the operations that they perform."""
