"""What every link carried during a step, and what met on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import TIERS, Cluster, FloatArray, IntArray, Rotation
from clustersim.trace.timeline import LinkUse, Meeting


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkCells:
    """Links that nothing tells apart, once each: same tier, same capacity, crossed alike by every kind of flow."""

    first_link: IntArray
    """The lowest link of each cell."""
    n_links: IntArray
    flows: FloatArray
    """Shape (n_cells, n_kinds): coefficient of each kind on a link of the cell."""


def link_cells(network: SharedNetwork, rotation: Rotation | None = None) -> LinkCells:
    """Return the cells of all links that a kind of flow crosses.

    Parameters
    ----------
    rotation
        A turn of the cluster, where the lowest of links that are alike stand for the others.
    """
    wiring, n_kinds = network.wiring, len(network.kinds)
    flows = np.zeros((len(wiring.first_link), n_kinds))
    kinds = np.repeat(np.arange(n_kinds), np.diff(wiring.starts))
    weights = np.array([kind.weight for kind in network.kinds], dtype=np.float64)
    flows[wiring.cells, kinds] = wiring.loads / weights[kinds]
    n_links = wiring.n_links
    if rotation is not None:
        crossed = np.flatnonzero(wiring.cell_of_link >= 0)
        counted = np.bincount(wiring.cell_of_link[crossed], weights=rotation.n_alike[crossed], minlength=len(wiring.first_link))
        n_links = counted.astype(np.int64)
    return LinkCells(first_link=wiring.first_link, n_links=n_links, flows=flows)


def link_use(
    cluster: Cluster, cells: LinkCells, network: SharedNetwork, states: Mapping[State, float], labels: Mapping[int, tuple[str, ...]]
) -> tuple[LinkUse, ...]:
    """Return bytes, busy time, peak and meetings of every cell of links.

    Parameters
    ----------
    states
        Seconds for which each combination of kinds was in flight.
    labels
        For each kind, the names of what puts it on the links; who used a link is told in their order.
    """
    busy_s, peak = np.zeros(len(cells.first_link)), np.zeros(len(cells.first_link))
    moved_bytes = np.zeros(len(network.kinds))
    account = _Account.of(labels, n_cells=len(cells.first_link))
    for state, seconds in states.items():
        rates = network.rates(state)
        counts = np.array([count for _, count in state], dtype=np.float64)
        kinds = [kind for kind, _ in state]
        flows = cells.flows[:, kinds]
        each = np.array([rates[kind] for kind in kinds]) * counts
        load = flows @ each
        moved_bytes[kinds] += each * seconds
        busy_s += np.where(load > 0.0, seconds, 0.0)
        peak = np.maximum(peak, load)
        account.note(flows > 0.0, state, seconds)
    carried_bytes = cells.flows @ moved_bytes
    account.carry(cells.flows, moved_bytes)
    nominal = cluster.bandwidth_bytes_per_s
    place = {name: number for number, name in enumerate(dict.fromkeys(name for names in account.names for name in names))}
    return tuple(
        LinkUse(
            tier=TIERS[int(cluster.tier_index[link])],
            name=cluster.links[int(link)].name,
            n_links=int(cells.n_links[cell]),
            bandwidth_bytes_per_s=float(nominal[link]),
            bytes=float(carried_bytes[cell]),
            busy_s=float(busy_s[cell]),
            peak_utilisation=float(peak[cell] / nominal[link]),
            users=tuple(sorted(account.users[cell], key=place.__getitem__)),
            meetings=tuple(Meeting(names=names, seconds=lasted) for names, lasted in sorted(account.met[cell].items(), key=_longest)),
            bytes_of=account.bytes_of(cell),
        )
        for cell, link in enumerate(cells.first_link.tolist())
    )


def _longest(entry: tuple[tuple[str, ...], float]) -> tuple[float, tuple[str, ...]]:
    return -entry[1], entry[0]


@dataclass(slots=True, kw_only=True, eq=False)
class _Account:
    """Whose flows crossed each cell, and which of them met there."""

    names: list[tuple[str, ...]]
    """Distinct names of kinds; what loads the links alike is one kind, so that one may have several."""
    name_of: dict[int, int]
    """For each kind, its place in ``names``."""
    seen: NDArray[np.bool_]
    """Shape (n_cells, n_names): what has crossed each cell so far."""
    users: list[dict[str, None]]
    """Of each cell."""
    met: list[dict[tuple[str, ...], float]]
    """Of each cell, seconds of each set of names."""
    carried_bytes: FloatArray
    """Shape (n_cells, n_names)."""

    @classmethod
    def of(cls, labels: Mapping[int, tuple[str, ...]], *, n_cells: int) -> _Account:
        """Return an account of nothing yet."""
        # Kinds without a name are the last.
        places = {name: place for place, name in enumerate([*dict.fromkeys(labels.values()), ()])}
        return cls(
            names=list(places),
            name_of={kind: places[name] for kind, name in labels.items()},
            seen=np.zeros((n_cells, len(places)), dtype=np.bool_),
            users=[{} for _ in range(n_cells)],
            met=[{} for _ in range(n_cells)],
            carried_bytes=np.zeros((n_cells, len(places))),
        )

    def carry(self, flows: FloatArray, moved_bytes: FloatArray) -> None:
        """Write down the bytes of each flow class over each cell; ``flows`` has shape (n_cells, n_kinds)."""
        for kind in np.flatnonzero(moved_bytes).tolist():
            self.carried_bytes[:, self.name_of.get(kind, len(self.names) - 1)] += flows[:, kind] * moved_bytes[kind]

    def bytes_of(self, cell: int) -> tuple[tuple[tuple[str, ...], float], ...]:
        """Return what each name carried over a link of a cell, in the order of the program."""
        row = self.carried_bytes[cell]
        return tuple((self.names[place], float(row[place])) for place in np.flatnonzero(row > 0.0).tolist())

    def note(self, crossed: NDArray[np.bool_], state: State, seconds: float) -> None:
        """Write down a state that lasted so long; ``crossed`` has shape (n_cells, n_kinds in the state)."""
        places = [self.name_of.get(kind, len(self.names) - 1) for kind, _ in state]
        ordered = list(dict.fromkeys(places))
        belongs = np.zeros((len(places), len(ordered)))
        belongs[range(len(places)), [ordered.index(place) for place in places]] = [count for _, count in state]
        flows = crossed @ belongs
        new = (flows > 0.0) & ~self.seen[:, ordered]
        if new.any():
            self.seen[:, ordered] |= new
            rows, columns = np.nonzero(new)
            for cell, column in zip(rows.tolist(), columns.tolist(), strict=True):
                self.users[cell].update(dict.fromkeys(self.names[ordered[column]]))
        # Several flows of one kind meet each other too.
        meeting = np.flatnonzero(flows.sum(axis=1) > 1.0)
        if meeting.size:
            present = flows[meeting] > 0.0
            kept, which = np.unique(present, axis=0, return_inverse=True)
            keys = [tuple(sorted({" or ".join(self.names[ordered[column]]) for column in np.flatnonzero(row)})) for row in kept]
            for cell, key in zip(meeting.tolist(), np.ravel(which).tolist(), strict=True):
                met = self.met[cell]
                met[keys[key]] = met.get(keys[key], 0.0) + seconds
