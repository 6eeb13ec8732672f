"""Small clusters that were built lately, so that many runs on the same one wire it once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.topology.changes import LinkChange
from clustersim.topology.cluster_wiring import build_mixed_cluster
from clustersim.topology.wired import WiredCluster

MOST_RANKS: Final = 512
"""Most ranks of a cluster that is kept. A larger one takes more memory, and wiring it less of the time of its run."""
N_KEPT: Final = 4
"""Clusters that are kept; the oldest goes first."""

_Asked = tuple[tuple[tuple[Node, int], ...], Fabric | None, tuple[LinkChange, ...], ServerHosts | None]
_LATELY: Final[deque[tuple[_Asked, WiredCluster]]] = deque(maxlen=N_KEPT)


def cluster_of(
    kinds: Sequence[tuple[Node, int]],
    fabric: Fabric | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    servers: ServerHosts | None = None,
) -> WiredCluster:
    """Return what :func:`build_mixed_cluster` does: the same cluster again, which never changes, where everything asked for is equal."""
    asked = (tuple(kinds), fabric, tuple(changes), servers)
    for known, cluster in tuple(_LATELY):
        if known == asked:
            return cluster
    cluster = build_mixed_cluster(kinds, fabric, changes=changes, servers=servers)
    if cluster.n_ranks <= MOST_RANKS:
        _LATELY.append((asked, cluster))
    return cluster
