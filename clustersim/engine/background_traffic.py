"""Loads of others come and go while a program is replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import simpy

from clustersim.engine.world import Process
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Background
from clustersim.topology.cluster import FloatArray, LinkFloats, LinkInts, link_values
from clustersim.topology.link_demand import RouteSet
from clustersim.topology.wired import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load on equivalent links, as one flow class."""

    background: Background
    flow_class: int


class Loads(Protocol):
    """Clock and network interface of a background load."""

    def wait(self, delay_s: float) -> simpy.Event:
        """Return an event after a delay."""
        ...

    def load(self, flow_class: int) -> Callable[[], None]:
        """Put traffic without end on the network, and return what takes it off."""
        ...


def prepare_loads(
    background: Sequence[Background], network: SharedNetwork, bandwidth_bytes_per_s: FloatArray | LinkFloats
) -> tuple[Load, ...]:
    """Return the loads as flow classes; all other flow classes must be on the network already.

    Each link carries a load by itself, so that one that is full does not slow the others. Links of equal bandwidth that all flow
    classes and all loads cross alike are in the same state at all times; on these a load is one flow class.

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
    alike = np.column_stack((network.wiring.class_of_link[links], bandwidth_bytes_per_s[links], times.T))
    link_classes = np.unique(alike, axis=0, return_inverse=True)[1].reshape(-1)
    loads: list[Load] = []
    for load, crossed in zip(background, times, strict=True):
        for link_class in np.unique(link_classes[crossed > 0]).tolist():
            here = link_classes == link_class
            route_set = RouteSet(link_ids=links[here], flows=crossed[here].astype(np.float64))
            flow_class = network.add_class(route_set, weight=float(load.n_flows), cap_bytes_per_s=load.rate_bytes_per_s)
            loads.append(Load(background=load, flow_class=flow_class))
    return tuple(loads)


def link_labels(background: Sequence[Background], cluster: Cluster) -> LinkInts:
    """Return one number for each link: links of different tiers, or that loads cross differently, have different ones."""
    if not background:
        return cluster.tier_index
    times = [np.bincount(load.link_ids, minlength=len(cluster.tier_index)) for load in background]
    labels = np.unique(np.stack([np.asarray(cluster.tier_index), *times]), axis=1, return_inverse=True)[1]
    return link_values(labels.reshape(-1).astype(np.int64))


def play(load: Load, clock: Loads) -> Process:
    """Put a load on the network, in bursts where it has a period, for as long as the world lasts."""
    background = load.background
    yield clock.wait(background.start_s)
    while True:
        stop = clock.load(load.flow_class)
        if background.period_s <= 0.0:
            return
        yield clock.wait(background.burst_s)
        stop()
        yield clock.wait(background.period_s - background.burst_s)
