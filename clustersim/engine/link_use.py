"""Traffic of every link during a step, and contention on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.engine.alone import Carried
from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import TIERS, Cluster, FloatArray, IntArray, Rotation
from clustersim.trace.timeline import LinkUse, Meeting


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkClasses:
    """Classes of equivalent links: same tier, same capacity, same flows of each flow class."""

    first_link: IntArray
    """The lowest link of each link class."""
    n_links: IntArray
    flows: FloatArray
    """Shape (n_link_classes, n_flow_classes): coefficient of each flow class on a link of the link class."""


def link_classes_of(network: SharedNetwork, rotation: Rotation | None = None) -> LinkClasses:
    """Return the link classes of all links that a flow class crosses.

    Parameters
    ----------
    rotation
        A turn of the cluster, where the lowest of links that are alike stand for the others.
    """
    wiring, n_flow_classes = network.wiring, len(network.flow_classes)
    flows = np.zeros((len(wiring.first_link), n_flow_classes))
    flow_classes = np.repeat(np.arange(n_flow_classes), np.diff(wiring.starts))
    weights = np.array([flow_class.weight for flow_class in network.flow_classes], dtype=np.float64)
    flows[wiring.link_classes, flow_classes] = wiring.loads / weights[flow_classes]
    n_links = wiring.n_links
    if rotation is not None:
        crossed = np.flatnonzero(wiring.class_of_link >= 0)
        counted = np.bincount(wiring.class_of_link[crossed], weights=rotation.n_alike[crossed], minlength=len(wiring.first_link))
        n_links = counted.astype(np.int64)
    return LinkClasses(first_link=wiring.first_link, n_links=n_links, flows=flows)


def link_use(
    cluster: Cluster,
    link_classes: LinkClasses,
    network: SharedNetwork,
    carried: Carried,
    labels: Mapping[int, tuple[str, ...]],
) -> tuple[LinkUse, ...]:
    """Return bytes, busy time, peak and contention of each link class.

    Parameters
    ----------
    carried
        Traffic of all flow classes.
    labels
        For each flow class, the names of what puts it on the links; who used a link is told in their order.
    """
    busy_s, peak = np.zeros(len(link_classes.first_link)), np.zeros(len(link_classes.first_link))
    moved_bytes = np.array([carried.bytes.get(flow_class, 0.0) for flow_class in range(len(network.flow_classes))])
    account = _Account.of(labels, n_link_classes=len(link_classes.first_link))
    for state, seconds in carried.seconds.items():
        rates = network.rates(state)
        counts = np.array([count for _, count in state], dtype=np.float64)
        flow_classes = [flow_class for flow_class, _ in state]
        flows = link_classes.flows[:, flow_classes]
        each = np.array([rates[flow_class] for flow_class in flow_classes]) * counts
        load = flows @ each
        busy_s += np.where(load > 0.0, seconds, 0.0)
        peak = np.maximum(peak, load)
        account.note(flows > 0.0, state, seconds)
    carried_bytes = link_classes.flows @ moved_bytes
    account.carry(link_classes.flows, moved_bytes)
    nominal = cluster.bandwidth_bytes_per_s
    place = {name: number for number, name in enumerate(dict.fromkeys(name for names in account.names for name in names))}
    return tuple(
        LinkUse(
            tier=TIERS[int(cluster.tier_index[link])],
            name=cluster.links[int(link)].name,
            n_links=int(link_classes.n_links[link_class]),
            bandwidth_bytes_per_s=float(nominal[link]),
            bytes=float(carried_bytes[link_class]),
            busy_s=float(busy_s[link_class]),
            peak_utilisation=float(peak[link_class] / nominal[link]),
            users=tuple(sorted(account.users[link_class], key=place.__getitem__)),
            meetings=tuple(Meeting(names=names, seconds=lasted) for names, lasted in sorted(account.met[link_class].items(), key=_longest)),
            bytes_of=account.bytes_of(link_class),
        )
        for link_class, link in enumerate(link_classes.first_link.tolist())
    )


def _longest(entry: tuple[tuple[str, ...], float]) -> tuple[float, tuple[str, ...]]:
    return -entry[1], entry[0]


@dataclass(slots=True, kw_only=True, eq=False)
class _Account:
    """Users of each link class, and those that overlapped there."""

    names: list[tuple[str, ...]]
    """Distinct names of flow classes; operations with equal link loads are one flow class, which may have several names."""
    name_of: dict[int, int]
    """For each flow class, its place in ``names``."""
    seen: NDArray[np.bool_]
    """Shape (n_link_classes, n_names): what has crossed each link class so far."""
    users: list[dict[str, None]]
    """Use of each link class."""
    met: list[dict[tuple[str, ...], float]]
    """Seconds of each set of names on each link class."""
    carried_bytes: FloatArray
    """Shape (n_link_classes, n_names)."""

    @classmethod
    def of(cls, labels: Mapping[int, tuple[str, ...]], *, n_link_classes: int) -> _Account:
        """Return an account of nothing yet."""
        # Flow classes without a name are the last.
        places = {name: place for place, name in enumerate([*dict.fromkeys(labels.values()), ()])}
        return cls(
            names=list(places),
            name_of={flow_class: places[name] for flow_class, name in labels.items()},
            seen=np.zeros((n_link_classes, len(places)), dtype=np.bool_),
            users=[{} for _ in range(n_link_classes)],
            met=[{} for _ in range(n_link_classes)],
            carried_bytes=np.zeros((n_link_classes, len(places))),
        )

    def carry(self, flows: FloatArray, moved_bytes: FloatArray) -> None:
        """Write down the bytes of each flow class over each link class; ``flows`` has shape (n_link_classes, n_flow_classes)."""
        for flow_class in np.flatnonzero(moved_bytes).tolist():
            self.carried_bytes[:, self.name_of.get(flow_class, len(self.names) - 1)] += flows[:, flow_class] * moved_bytes[flow_class]

    def bytes_of(self, link_class: int) -> tuple[tuple[tuple[str, ...], float], ...]:
        """Return what each name carried over a link of a link class, in the order of the program."""
        row = self.carried_bytes[link_class]
        return tuple((self.names[place], float(row[place])) for place in np.flatnonzero(row > 0.0).tolist())

    def note(self, crossed: NDArray[np.bool_], state: State, seconds: float) -> None:
        """Write down a state that lasted so long; ``crossed`` has shape (n_link_classes, n_flow_classes in the state)."""
        places = [self.name_of.get(flow_class, len(self.names) - 1) for flow_class, _ in state]
        ordered = list(dict.fromkeys(places))
        belongs = np.zeros((len(places), len(ordered)))
        belongs[range(len(places)), [ordered.index(place) for place in places]] = [count for _, count in state]
        flows = crossed @ belongs
        new = (flows > 0.0) & ~self.seen[:, ordered]
        if new.any():
            self.seen[:, ordered] |= new
            rows, columns = np.nonzero(new)
            for link_class, column in zip(rows.tolist(), columns.tolist(), strict=True):
                self.users[link_class].update(dict.fromkeys(self.names[ordered[column]]))
        # Several flows of one flow class meet each other too.
        meeting = np.flatnonzero(flows.sum(axis=1) > 1.0)
        if meeting.size:
            present = flows[meeting] > 0.0
            kept, which = np.unique(present, axis=0, return_inverse=True)
            keys = [tuple(sorted({" or ".join(self.names[ordered[column]]) for column in np.flatnonzero(row)})) for row in kept]
            for link_class, key in zip(meeting.tolist(), np.ravel(which).tolist(), strict=True):
                met = self.met[link_class]
                met[keys[key]] = met.get(keys[key], 0.0) + seconds
