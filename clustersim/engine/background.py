"""Loads of others come and go while a program is replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clustersim.network.sharing import SharedNetwork
from clustersim.program.background import Background
from clustersim.topology.cluster import Cluster, FloatArray, IntArray
from clustersim.topology.load import Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load on links that nothing tells apart, as one kind of flow."""

    background: Background
    kind: int


class Loads(Protocol):
    """What a load asks of time and of the network."""

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in so many seconds."""
        ...

    def load(self, kind: int) -> Callable[[], None]:
        """Put traffic without end on the network, and return what takes it off."""
        ...


def lay_loads(background: Sequence[Background], network: SharedNetwork, bandwidth_bytes_per_s: FloatArray) -> tuple[Load, ...]:
    """Return the loads as kinds of flow; all other kinds must be on the network already.

    Each link carries a load by itself, so that one that is full does not slow the others. Links of equal bandwidth that all kinds and
    all loads cross alike are in the same state at all times; on these a load is one kind.

    Parameters
    ----------
    bandwidth_bytes_per_s
        Usable, of each link of the cluster.
    """
    if not background:
        return ()
    times = np.stack([np.bincount(load.link_ids, minlength=len(bandwidth_bytes_per_s)) for load in background])
    links = np.flatnonzero(times.any(axis=0))
    times = times[:, links]
    alike = np.column_stack((network.wiring.cell_of_link[links], bandwidth_bytes_per_s[links], times.T))
    cells = np.unique(alike, axis=0, return_inverse=True)[1].reshape(-1)
    loads: list[Load] = []
    for load, crossed in zip(background, times, strict=True):
        for cell in np.unique(cells[crossed > 0]).tolist():
            here = cells == cell
            footprint = Footprint(link_ids=links[here], flows=crossed[here].astype(np.float64))
            kind = network.add_kind(footprint, weight=float(load.n_flows), cap_bytes_per_s=load.rate_bytes_per_s)
            loads.append(Load(background=load, kind=kind))
    return tuple(loads)


def link_labels(background: Sequence[Background], cluster: Cluster) -> IntArray:
    """Return one number for each link: links of different tiers, or that loads cross differently, have different ones."""
    if not background:
        return cluster.tier_index
    times = [np.bincount(load.link_ids, minlength=len(cluster.tier_index)) for load in background]
    return np.unique(np.stack([cluster.tier_index, *times]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def play(load: Load, clock: Loads) -> None:
    """Put a load on the network, in bursts where it has a period, for as long as the clock goes."""
    background = load.background

    def begin() -> None:
        stop = clock.load(load.kind)
        if background.period_s > 0.0:
            clock.after(background.burst_s, lambda: end(stop))

    def end(stop: Callable[[], None]) -> None:
        stop()
        clock.after(background.period_s - background.burst_s, begin)

    clock.after(background.start_s, begin)
