"""Traffic of every link during a step, and contention on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.engine.alone import Carried
from clustersim.engine.refinement import Hashes, scrambled
from clustersim.network.filling import spans
from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import TIERS, FloatArray, IntArray, Rotation
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import LinkUse, Meeting

BATCH: Final = 1 << 14
"""Flow classes of the states that are accounted for at one time."""


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
        A rotation of the cluster, where the lowest of links that are alike stand for the others.
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
    moved_bytes = np.array([carried.bytes.get(flow_class, 0.0) for flow_class in range(len(network.flow_classes))])
    account = _Account.of(labels, n_link_classes=len(link_classes.first_link), n_flow_classes=len(network.flow_classes))
    for states in _batches(carried.seconds):
        account.note(states, network)
    carried_bytes = link_classes.flows @ moved_bytes
    account.carry(link_classes.flows, moved_bytes)
    nominal = cluster.bandwidth_bytes_per_s[link_classes.first_link]
    sizes = zip(link_classes.n_links.tolist(), nominal.tolist(), carried_bytes.tolist(), strict=True)
    uses = zip(account.busy_s.tolist(), (account.peak_bytes_per_s / nominal).tolist(), account.users(), account.bytes_of(), strict=True)
    tiers = [TIERS[int(tier)] for tier in cluster.tier_index[link_classes.first_link]]
    return tuple(
        LinkUse(
            tier=tier,
            name=cluster.link_name(link),
            n_links=n_links,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            bytes=moved,
            busy_s=busy_s,
            peak_utilisation=peak,
            users=users,
            meetings=tuple(Meeting(names=names, seconds=lasted) for names, lasted in sorted(met.items(), key=_longest)),
            bytes_of=tuple(bytes_of),
        )
        for link, tier, (n_links, bandwidth_bytes_per_s, moved), (busy_s, peak, users, bytes_of), met in zip(
            link_classes.first_link.tolist(), tiers, sizes, uses, account.met, strict=True
        )
    )


def _longest(entry: tuple[tuple[str, ...], float]) -> tuple[float, tuple[str, ...]]:
    return -entry[1], entry[0]


def _batches(seconds: Mapping[State, float]) -> Iterator[Sequence[tuple[State, float]]]:
    """Give all states with their seconds, as many at a time as have some ten thousand flow classes."""
    some: list[tuple[State, float]] = []
    n_flow_classes = 0
    for state, lasted_s in seconds.items():
        if not state:
            continue
        some.append((state, lasted_s))
        n_flow_classes += len(state)
        if n_flow_classes >= BATCH:
            yield some
            some, n_flow_classes = [], 0
    if some:
        yield some


@dataclass(slots=True, kw_only=True, eq=False)
class _Account:
    """Users of each link class, and those that overlapped there."""

    names: list[tuple[str, ...]]
    """Distinct names of flow classes; operations with equal link loads are one flow class, which may have several names."""
    name_of: IntArray
    """For each flow class, its place in ``names``."""
    salts: Hashes
    """Hash of each name."""
    busy_s: FloatArray
    """Time with anything in flight on each link class, in seconds."""
    peak_bytes_per_s: FloatArray
    """Largest load of each link class."""
    seen: NDArray[np.bool_]
    """Shape (n_link_classes, n_names): what has crossed each link class so far."""
    met: list[dict[tuple[str, ...], float]]
    """Seconds of each set of names on each link class."""
    carried_bytes: FloatArray
    """Shape (n_link_classes, n_names)."""

    @classmethod
    def of(cls, labels: Mapping[int, tuple[str, ...]], *, n_link_classes: int, n_flow_classes: int) -> _Account:
        """Return an account of nothing yet."""
        # Flow classes without a name are the last.
        places = {name: place for place, name in enumerate([*dict.fromkeys(labels.values()), ()])}
        return cls(
            names=list(places),
            name_of=np.array([places[labels.get(flow_class, ())] for flow_class in range(n_flow_classes)], dtype=np.int64),
            salts=scrambled(np.arange(len(places))),
            busy_s=np.zeros(n_link_classes),
            peak_bytes_per_s=np.zeros(n_link_classes),
            seen=np.zeros((n_link_classes, len(places)), dtype=np.bool_),
            met=[{} for _ in range(n_link_classes)],
            carried_bytes=np.zeros((n_link_classes, len(places))),
        )

    def users(self) -> Iterator[tuple[str, ...]]:
        """Yield the names of what has crossed each link class, each once, in the order of the program."""
        order = {name: number for number, name in enumerate(dict.fromkeys(name for names in self.names for name in names))}
        told: dict[bytes, tuple[str, ...]] = {}
        for row in self.seen:
            key = row.tobytes()
            if key not in told:
                crossed = {name for place in np.flatnonzero(row).tolist() for name in self.names[place]}
                told[key] = tuple(sorted(crossed, key=order.__getitem__))
            yield told[key]

    def carry(self, flows: FloatArray, moved_bytes: FloatArray) -> None:
        """Write down the bytes of each flow class over each link class; ``flows`` has shape (n_link_classes, n_flow_classes)."""
        for flow_class in np.flatnonzero(moved_bytes).tolist():
            self.carried_bytes[:, self.name_of[flow_class]] += flows[:, flow_class] * moved_bytes[flow_class]

    def bytes_of(self) -> Sequence[Sequence[tuple[tuple[str, ...], float]]]:
        """Return for each link class what each name carried over one of its links, in the order of the program."""
        found: list[list[tuple[tuple[str, ...], float]]] = [[] for _ in self.met]
        link_classes, places = np.nonzero(self.carried_bytes > 0.0)
        carried_bytes = self.carried_bytes[link_classes, places].tolist()
        for link_class, place, size_bytes in zip(link_classes.tolist(), places.tolist(), carried_bytes, strict=True):
            found[link_class].append((self.names[place], size_bytes))
        return found

    def note(self, states: Sequence[tuple[State, float]], network: SharedNetwork) -> None:
        """Write down states with their seconds."""
        wiring, n_link_classes = network.wiring, len(self.busy_s)
        flow_classes = np.array([flow_class for state, _ in states for flow_class, _ in state], dtype=np.int64)
        counts = np.array([count for state, _ in states for _, count in state], dtype=np.float64)
        rates = np.concatenate([network.rates_of(state) for state, _ in states])
        lasted_s = np.array([seconds for _, seconds in states])
        # One entry for each link class that a flow class of a state crosses.
        lengths = wiring.starts[flow_classes + 1] - wiring.starts[flow_classes]
        entries = spans(wiring.starts, flow_classes)
        cells = np.repeat(np.repeat(np.arange(len(states)), [len(state) for state, _ in states]), lengths)
        cells = cells * n_link_classes + wiring.link_classes[entries]
        shape = len(states), n_link_classes
        loads = np.bincount(cells, wiring.flows[entries] * np.repeat(rates * counts, lengths), minlength=shape[0] * shape[1]).reshape(shape)
        self.busy_s += lasted_s @ (loads > 0.0)
        self.peak_bytes_per_s = np.maximum(self.peak_bytes_per_s, loads.max(axis=0))
        present = np.unique(cells * len(self.names) + np.repeat(self.name_of[flow_classes], lengths))
        cells_of, names = np.divmod(present, len(self.names))
        self.seen[cells_of % n_link_classes, names] = True
        # Several flows of one flow class meet each other too.
        n_flows = np.bincount(cells, np.repeat(counts, lengths), minlength=shape[0] * shape[1])
        firsts = np.flatnonzero(np.diff(cells_of, prepend=-1))
        meets = n_flows[cells_of[firsts]] > 1.0
        if meets.any():
            self._meet(firsts, meets, cells_of, names, lasted_s)

    def _meet(self, firsts: IntArray, meets: NDArray[np.bool_], cells_of: IntArray, names: IntArray, lasted_s: FloatArray) -> None:
        """Write down the sets of names that share a link class, each set once with all its seconds.

        Parameters
        ----------
        firsts
            First row of each pair of a state and a link class.
        meets
            Whether flows meet there.
        cells_of, names
            Pair and name of each row.
        """
        ends = np.append(firsts[1:], len(names))
        which = scrambled(np.add.reduceat(self.salts[names], firsts)) + scrambled(cells_of[firsts] % len(self.busy_s), 1)
        _, places, sets = np.unique(which[meets], return_index=True, return_inverse=True)
        seconds = np.bincount(sets.reshape(-1), lasted_s[cells_of[firsts[meets]] // len(self.busy_s)])
        rows = np.flatnonzero(meets)[places]
        for first, end, total_s in zip(firsts[rows].tolist(), ends[rows].tolist(), seconds.tolist(), strict=True):
            present: list[int] = names[first:end].tolist()
            key = tuple(sorted(" or ".join(self.names[place]) for place in present))
            met = self.met[int(cells_of[first]) % len(self.busy_s)]
            met[key] = met.get(key, 0.0) + total_s
