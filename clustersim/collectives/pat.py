"""All-gather over parallel aggregated trees, and reduce-scatter back over them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import exchanged
from clustersim.collectives.pattern import Algorithm, Grouping, Pattern
from clustersim.collectives.recursive import GatherOp, Shift, shift_exchanges
from clustersim.topology.wired import Cluster


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
    {
        "all_gather": Algorithm(name="pat", lay=partial(lay_pat, "all_gather")),
        "reduce_scatter": Algorithm(name="pat", lay=partial(lay_pat, "reduce_scatter")),
    }
)
"""Parallel aggregated trees, for the operations that they perform."""
