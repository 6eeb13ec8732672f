"""Recursive doubling and halving, Bruck's algorithm for other numbers of ranks, and parallel aggregated trees (PAT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, get_args

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
    {op: Algorithm(name="recursive", lay=partial(lay_recursive, op)) for op in get_args(GatherOp)}
)
"""Recursive doubling and halving, for the operations that they perform."""


def aggregated_tree_shifts(n: int) -> tuple[Shift, ...]:
    """Return the distances of Bruck from the longest down: few parts go far and many go near, one binomial tree for each part."""
    distances = [1 << step for step in reversed(range((n - 1).bit_length()))]
    return tuple(Shift(distance=far, offsets=np.arange(0, n - far, 2 * far, dtype=np.int64)) for far in distances)


def lay_pat(op: GatherOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return an all-gather over one binomial tree for each rank, or the reduce-scatter that mirrors it.

    Every rank sends ``ceil((n - 2^k) / 2^(k+1))`` parts of S/n over the distance ``2^k``, for each power of two below n:
    ``(n - 1) / n * S`` in all, as in a ring, after ``ceil(log2 n)`` steps. Long tensors pass in pieces of which
    different ones are on different steps, so that all distances are in use at once.

    References
    ----------
    .. [1] S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252, 2025; with
       buffers for all parts it is Bruck's algorithm with the distances reversed.
    """
    exchanges = shift_exchanges(op, aggregated_tree_shifts(group.size), group.size)
    return Pattern(phases=((exchanged(cluster, group, exchanges, 1 / group.size),),), uniform=group.per_domain > 0)


PAT: Final[Mapping[GatherOp, Algorithm]] = MappingProxyType(
    {op: Algorithm(name="pat", lay=partial(lay_pat, op)) for op in get_args(GatherOp)}
)
"""Parallel aggregated trees, for the operations that they perform."""


def lay_halving_doubling(cluster: Cluster, group: Grouping) -> Pattern:
    """Return a halving-doubling all-reduce, a phase for each step.

    In step k of the reduction, partners at distance ``2^k`` exchange ``S / 2^(k+1)``: most bytes go the shortest way. The
    gathering goes the same ways back. Of n ranks that are no power of two, the first ``2 (n - 2^floor(log2 n))`` stand in
    pairs: one of each adds its whole tensor to the other's first, and gets the result last.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
       *IJHPCA* 19(1), 2005, section 4.5.
    """
    core, extra = _core(group.size)
    here = np.arange(len(core), dtype=np.int64)
    halving = [
        (exchanged(cluster, group, [GroupExchange(sources=core, destinations=core[partners], n_parts=1)], share),)
        for partners, share in ((here ^ 1 << step, 0.5 ** (step + 1)) for step in range(_n_steps(len(core))))
    ]
    phases = [*halving, *reversed(halving)]
    if len(extra):
        fold = GroupExchange(sources=extra, destinations=extra + 1, n_parts=1)
        unfold = GroupExchange(sources=extra + 1, destinations=extra, n_parts=1)
        phases = [(exchanged(cluster, group, [fold], 1.0),), *phases, (exchanged(cluster, group, [unfold], 1.0),)]
    return Pattern(phases=tuple(phases), uniform=group.per_domain > 0)


def _n_steps(size: int) -> int:
    return size.bit_length() - 1


def _core(n_ranks: int) -> tuple[IntArray, IntArray]:
    """Return the ranks that halve and double, a power of two, and those that take no part; the next rank acts for each of the latter."""
    n_extra = n_ranks - (1 << _n_steps(n_ranks))
    extra = 2 * np.arange(n_extra, dtype=np.int64)
    return np.setdiff1d(np.arange(n_ranks, dtype=np.int64), extra), extra


HALVING_DOUBLING: Final = Algorithm(name="halving_doubling", lay=lay_halving_doubling)
