"""All-reduce by recursive halving and doubling: ranks exchange halves with partners at growing, then shrinking distances."""

from __future__ import annotations

from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import GroupExchange, exchanged
from clustersim.collectives.pattern import Algorithm, Grouping, Pattern
from clustersim.topology.cluster import IntArray
from clustersim.topology.wired import Cluster


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
    halving = [
        (exchanged(cluster, group, [GroupExchange(sources=core, destinations=core[partners], n_parts=1)], share),)
        for partners, share in ((_partners(len(core), step), 0.5 ** (step + 1)) for step in range(_n_steps(len(core))))
    ]
    phases = [*halving, *reversed(halving)]
    if len(extra):
        fold = GroupExchange(sources=extra, destinations=extra + 1, n_parts=1)
        unfold = GroupExchange(sources=extra + 1, destinations=extra, n_parts=1)
        phases = [(exchanged(cluster, group, [fold], 1.0),), *phases, (exchanged(cluster, group, [unfold], 1.0),)]
    return Pattern(phases=tuple(phases), uniform=group.per_domain > 0)


def _partners(size: int, step: int) -> IntArray:
    return np.arange(size, dtype=np.int64) ^ 1 << step


def _n_steps(size: int) -> int:
    return size.bit_length() - 1


def _core(n_ranks: int) -> tuple[IntArray, IntArray]:
    """Return the ranks that halve and double, a power of two, and those that take no part; the next rank acts for each of the latter."""
    n_extra = n_ranks - (1 << _n_steps(n_ranks))
    extra = 2 * np.arange(n_extra, dtype=np.int64)
    return np.setdiff1d(np.arange(n_ranks, dtype=np.int64), extra), extra


HALVING_DOUBLING: Final = Algorithm(name="halving_doubling", lay=lay_halving_doubling)
