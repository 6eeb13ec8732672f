"""Patterns that were laid lately on small clusters: runs on the same cluster, and replays of one run, lay the same again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from clustersim.collectives.pattern import Grouping, Pattern, grouping
from clustersim.collectives.transfers import lay_transfers
from clustersim.topology.cluster import Cluster, IntArray

MOST_RANKS: Final = 512
"""Of a cluster whose patterns are kept. Larger ones would take much memory, and are not kept themselves."""
MOST_PAIRS: Final = 8192
"""Of ranks in groups whose patterns are kept: as many flows as an exchange has."""

Lay = Callable[[Cluster, Grouping], Pattern]


def laid(lay: Lay, cluster: Cluster, groups: Grouping) -> Pattern:
    """Return what an algorithm does in groups: ``lay(cluster, groups)``.

    Raises
    ------
    DomainError
        Where the cluster or the groups cannot run it.
    """
    if cluster.n_ranks > MOST_RANKS or groups.members.size * groups.size > MOST_PAIRS:
        return lay(cluster, groups)
    return _laid(lay, cluster, groups.members.tobytes(), groups.size)


def sent(cluster: Cluster, pairs: IntArray) -> Pattern:
    """Return sends over pairs of ranks, given as rows."""
    if cluster.n_ranks > MOST_RANKS or len(pairs) > MOST_PAIRS:
        return lay_transfers(cluster, pairs[:, 0], pairs[:, 1])
    return _sent(cluster, pairs.tobytes())


# Clusters and algorithms are compared by identity: neither ever changes, and both live as long as they are keys here.
@lru_cache(maxsize=256)
def _laid(lay: Lay, cluster: Cluster, members: bytes, size: int) -> Pattern:
    return lay(cluster, grouping(cluster, np.frombuffer(members, dtype=np.int64).reshape(-1, size)))


@lru_cache(maxsize=64)
def _sent(cluster: Cluster, pairs: bytes) -> Pattern:
    ends = np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2)
    return lay_transfers(cluster, ends[:, 0], ends[:, 1])
