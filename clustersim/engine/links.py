"""What every link carried during a step, and what met on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.network.levels import State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import TIERS, Cluster, FloatArray, IntArray
from clustersim.trace.timeline import LinkUse, Meeting


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkCells:
    """Links that nothing tells apart, once each: same tier, same capacity, crossed alike by every kind of flow."""

    first_link: IntArray
    """The lowest link of each cell."""
    n_links: IntArray
    flows: FloatArray
    """Shape (n_cells, n_kinds): coefficient of each kind on a link of the cell."""


def link_cells(network: SharedNetwork) -> LinkCells:
    """Return the cells of all links that a kind of flow crosses."""
    wiring, n_kinds = network.wiring, len(network.kinds)
    flows = np.zeros((len(wiring.first_link), n_kinds))
    kinds = np.repeat(np.arange(n_kinds), np.diff(wiring.starts))
    weights = np.array([kind.weight for kind in network.kinds], dtype=np.float64)
    flows[wiring.cells, kinds] = wiring.loads / weights[kinds]
    return LinkCells(first_link=wiring.first_link, n_links=wiring.n_links, flows=flows)


def link_use(
    cluster: Cluster, cells: LinkCells, network: SharedNetwork, states: Mapping[State, float], labels: Mapping[int, tuple[str, ...]]
) -> tuple[LinkUse, ...]:
    """Return bytes, busy time, peak and meetings of every cell of links.

    Parameters
    ----------
    states
        Seconds for which each combination of kinds was in flight.
    labels
        For each kind, the names of what puts it on the links.
    """
    carried_bytes = np.zeros(len(cells.first_link))
    busy_s = np.zeros_like(carried_bytes)
    peak = np.zeros_like(carried_bytes)
    met: list[dict[tuple[str, ...], float]] = [{} for _ in cells.first_link]
    users: list[dict[str, None]] = [{} for _ in cells.first_link]
    for state, seconds in states.items():
        rates = network.rates(state)
        counts = np.array([count for _, count in state], dtype=np.float64)
        kinds = [kind for kind, _ in state]
        flows = cells.flows[:, kinds]
        load = flows @ (np.array([rates[kind] for kind in kinds]) * counts)
        carried_bytes += load * seconds
        busy_s += np.where(load > 0.0, seconds, 0.0)
        peak = np.maximum(peak, load)
        _note(flows > 0.0, [(labels.get(kind, ()), count) for kind, count in state], seconds, users, met)
    nominal = cluster.bandwidth_bytes_per_s
    return tuple(
        LinkUse(
            tier=TIERS[int(cluster.tier_index[link])],
            name=cluster.links[int(link)].name,
            n_links=int(cells.n_links[cell]),
            bandwidth_bytes_per_s=float(nominal[link]),
            bytes=float(carried_bytes[cell]),
            busy_s=float(busy_s[cell]),
            peak_utilisation=float(peak[cell] / nominal[link]),
            users=tuple(users[cell]),
            meetings=tuple(Meeting(names=names, seconds=lasted) for names, lasted in sorted(met[cell].items(), key=_longest)),
        )
        for cell, link in enumerate(cells.first_link.tolist())
    )


def _longest(entry: tuple[tuple[str, ...], float]) -> tuple[float, tuple[str, ...]]:
    return -entry[1], entry[0]


def _note(
    crossed: NDArray[np.bool_],
    flights: list[tuple[tuple[str, ...], int]],
    seconds: float,
    users: list[dict[str, None]],
    met: list[dict[tuple[str, ...], float]],
) -> None:
    """Write down, for each cell, whose flows crossed it in a state, and which of them met there."""
    for cell, row in enumerate(crossed):
        here = [flight for flight, crosses in zip(flights, row.tolist(), strict=True) if crosses]
        if not here:
            continue
        users[cell].update((name, None) for labels, _ in here for name in labels)
        if len(here) > 1 or here[0][1] > 1:
            # Operations that load the links alike are one kind of flow: which of them it was is not known here.
            key = tuple(sorted({" or ".join(labels) for labels, _ in here}))
            met[cell][key] = met[cell].get(key, 0.0) + seconds
