"""All-gather by recursive doubling, or by Bruck's algorithm if the number of ranks is not a power of two; reduce-scatter is its reverse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.collectives.collective_flows import GroupExchange, exchanged
from clustersim.collectives.pattern import Algorithm, Grouping, Pattern
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster

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


def shift_exchanges(op: GatherOp, shifts: Sequence[Shift], n: int) -> list[GroupExchange]:
    """Return senders, receivers and numbers of parts in each step; a reduce-scatter is the reverse of the all-gather."""
    here = np.arange(n, dtype=np.int64)
    if op == "all_gather":
        return [GroupExchange(sources=here, destinations=(here + shift.distance) % n, n_parts=len(shift.offsets)) for shift in shifts]
    return [GroupExchange(sources=(here + shift.distance) % n, destinations=here, n_parts=len(shift.offsets)) for shift in reversed(shifts)]


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
    exchanges = shift_exchanges(op, bruck_shifts(n), n) if n & (n - 1) else _partner_exchanges(op, n)
    phases = tuple((exchanged(cluster, group, [exchange], 1 / n),) for exchange in exchanges)
    return Pattern(phases=phases, uniform=group.per_domain > 0)


def _partner_exchanges(op: GatherOp, n: int) -> list[GroupExchange]:
    here = np.arange(n, dtype=np.int64)
    distances = [1 << step for step in range(n.bit_length() - 1)]
    if op == "all_gather":
        distances.reverse()
    return [GroupExchange(sources=here, destinations=here ^ far, n_parts=n // 2 // far) for far in distances]


RECURSIVE: Final[Mapping[GatherOp, Algorithm]] = MappingProxyType(
    {
        "all_gather": Algorithm(name="recursive", lay=partial(lay_recursive, "all_gather")),
        "reduce_scatter": Algorithm(name="recursive", lay=partial(lay_recursive, "reduce_scatter")),
    }
)
"""Recursive doubling and halving, for the operations that they perform."""
