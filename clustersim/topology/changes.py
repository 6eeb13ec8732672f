"""Changes of single links that a scenario gives: degraded, down, or half-duplex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustersim.errors import inside
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.hashing import BoolArray
from clustersim.topology.names import BothWays, Links, links_between


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """One change of the links between two ends, by the names that ``ends`` of the cluster gives.

    A ``*`` in a name stands for anything up to the next slash, and ``[0-3,7]`` for some of the numbers.
    """

    between: tuple[str, str]
    bandwidth_bytes_per_s: float | None = None
    """Bandwidth of all links between two ends together, one direction."""
    fraction: float | None = None
    """Share of the bandwidth as built that is left."""
    latency_s: float | None = None
    down: bool = False
    half_duplex: bool = False
    """Whether both directions share the capacity of one."""
    forward_only: bool = False
    """Whether only links from the first end to the second are meant."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changed:
    """Links after all changes."""

    works: BoolArray
    """Whether each link is up."""
    bandwidth_bytes_per_s: FloatArray
    """Bandwidth; of a link that is down, that of the undamaged link, since no route contains it and no division by zero may occur."""
    latency_s: FloatArray
    shared: IntArray | None
    """The link whose capacity each link takes: itself, or the other direction of a half-duplex link. None without any such."""


def change_links(layout: ClusterLayout, bandwidth_bytes_per_s: FloatArray, latency_s: FloatArray, changes: Sequence[LinkChange]) -> Changed:
    """Return links after some changes, the later ones on top of the earlier."""
    bandwidth, latency = bandwidth_bytes_per_s.copy(), latency_s.copy()
    works = np.ones(layout.n_links, dtype=np.bool_)
    shared = np.arange(layout.n_links, dtype=np.int64)
    for index, change in enumerate(changes):
        with inside("changes", index):
            found = links_between(layout, change.between)
        for links in (found.forward,) if change.forward_only else (found.forward, found.backward):
            _change(change, links, bandwidth, bandwidth_bytes_per_s, latency)
            for ids in links.values():
                works[ids] = not change.down
        if change.half_duplex:
            _share(found, shared)
    alike = bool((shared == np.arange(layout.n_links)).all())
    return Changed(works=works, bandwidth_bytes_per_s=bandwidth, latency_s=latency, shared=None if alike else shared)


def _change(change: LinkChange, links: Links, bandwidth: FloatArray, as_built: FloatArray, latency: FloatArray) -> None:
    for parallel in links.values():
        ids = np.array(parallel, dtype=np.int64)
        if change.fraction is not None:
            bandwidth[ids] = as_built[ids] * change.fraction
        elif change.bandwidth_bytes_per_s is not None:
            bandwidth[ids] = change.bandwidth_bytes_per_s * as_built[ids] / as_built[ids].sum()
        if change.latency_s is not None:
            latency[ids] = change.latency_s


def _share(found: BothWays, shared: IntArray) -> None:
    for (tail, head), ids in found.forward.items():
        back = found.backward.get((head, tail), [])
        shared[back] = shared[ids[: len(back)]]
