"""Flow classes on link classes: the links that each crosses, those that no class resolves, and classes that can ever contend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.network.filling import Row
from clustersim.topology.cluster import FloatArray, IntArray, KeyArray, LinkFloats, LinkInts, pair_keys
from clustersim.topology.link_demand import RouteSet

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowClass:
    """Coupled flows that differ in nothing but their bytes and their start."""

    route_set: RouteSet
    weight: float
    """Under progressive filling the rate grows as this times the level."""
    cap_bytes_per_s: float
    """The rate never exceeds it."""

    @property
    def limit(self) -> float:
        """The highest level."""
        return self.cap_bytes_per_s / self.weight

    @property
    def key(self) -> tuple[float, ...]:
        """Key that two flow classes share when they are one, and mostly not otherwise."""
        links, flows = self.route_set.link_ids, self.route_set.flows
        ends = (int(links[0]), int(links[-1])) if len(links) else ()
        return (self.weight, self.cap_bytes_per_s, len(links), *ends, int(links.sum()), float(flows.sum()))

    def is_like(self, other: FlowClass) -> bool:
        """Return whether two flow classes are one."""
        if self.weight != other.weight or self.cap_bytes_per_s != other.cap_bytes_per_s:
            return False
        mine, its = self.route_set, other.route_set
        return mine is its or (np.array_equal(mine.link_ids, its.link_ids) and np.array_equal(mine.flows, its.flows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wiring:
    """All flow classes on link classes, in compressed rows: flow class v crosses ``link_classes[starts[v]:starts[v + 1]]``.

    A link class is a set of links that no flow class tells apart. They have the same capacity, the same label, and as many flows of
    every class, so that they are full at the same moment and one of them stands for all.
    """

    starts: IntArray
    link_classes: IntArray
    flows: FloatArray
    """Number of flows of the class that cross each link of the link class."""
    loads: FloatArray
    """Demand of one flow of the class on each link of the link class at level 1: coefficient times weight."""
    limits: FloatArray
    """Highest level of each flow class."""
    components: IntArray
    """For each flow class the first class connected with it through shared links."""
    capacity_bytes_per_s: FloatArray
    """Bandwidth of each link of a link class."""
    first_link: IntArray
    """The lowest link of each link class."""
    class_of_link: NDArray[np.int32]
    """For each link of the cluster; -1 for those that no flow class crosses."""
    _entries: dict[int, list[tuple[int, float]]] = field(default_factory=dict[int, list[tuple[int, float]]])
    """Link classes and loads of each flow class that was in flight."""

    @property
    def n_links(self) -> IntArray:
        """Number of links in each link class."""
        return np.bincount(self.class_of_link[self.class_of_link >= 0], minlength=len(self.first_link))

    def meets(self) -> BoolArray:
        """Return the matrix of flow classes that share a link."""
        n_flow_classes = len(self.limits)
        flow_classes = np.repeat(np.arange(n_flow_classes), np.diff(self.starts))
        by_link_class = np.argsort(self.link_classes, kind="stable")
        bounds = np.searchsorted(self.link_classes[by_link_class], np.arange(len(self.first_link) + 1)).tolist()
        together = np.zeros((n_flow_classes, n_flow_classes), dtype=np.bool_)
        # One link class after the other: a table of all would not fit in memory where every group is a flow class of its own.
        for here in {flow_classes[by_link_class[first:last]].tobytes() for first, last in pairwise(bounds)}:
            crossing = np.frombuffer(here, dtype=flow_classes.dtype)
            together[crossing[:, None], crossing] = True
        return together

    def rows(self, flows: Sequence[int], counts: Sequence[float]) -> list[Row]:
        """Return some flow classes with their numbers of flows in flight as ``progressive_filling`` takes them."""
        return [
            ([(link_class, load * count) for link_class, load in self._entries_of(flow)], self.limits.item(flow))
            for flow, count in zip(flows, counts, strict=True)
        ]

    def _entries_of(self, flow: int) -> list[tuple[int, float]]:
        """Return the link classes of a class, each with the demand of one flow."""
        entries = self._entries.get(flow)
        if entries is None:
            row = slice(*self.starts[flow : flow + 2].tolist())
            entries = self._entries[flow] = list(zip(self.link_classes[row].tolist(), self.loads[row].tolist(), strict=True))
        return entries


def wiring_of(flow_classes: Sequence[FlowClass], capacity_bytes_per_s: FloatArray | LinkFloats, labels: IntArray | LinkInts) -> Wiring:
    """Return the flow classes on the link classes of their links.

    Parameters
    ----------
    capacity_bytes_per_s
        Of every link of the cluster.
    labels
        One number for each link of the cluster; links with different labels are kept apart.
    """
    alike = links_alike([flow_class.route_set for flow_class in flow_classes], capacity_bytes_per_s, labels)
    link_classes, class_of, flows = alike.entries.places, alike.entries.flow_classes, alike.entries.flows
    return Wiring(
        starts=np.searchsorted(class_of, np.arange(len(flow_classes) + 1)),
        link_classes=link_classes,
        flows=flows,
        loads=flows * np.array([flow_class.weight for flow_class in flow_classes])[class_of],
        limits=np.array([flow_class.limit for flow_class in flow_classes]),
        components=_components(link_classes, class_of, len(flow_classes), len(alike.first_link)),
        capacity_bytes_per_s=capacity_bytes_per_s[alike.first_link].astype(np.float64),
        first_link=alike.first_link,
        class_of_link=alike.class_of_link,
    )


def _components(link_classes: IntArray, class_of: IntArray, n_flow_classes: int, n_link_classes: int) -> IntArray:
    """Return for each flow class the lowest class connected with it: labels spread to link classes and back until none changes."""
    names = np.arange(n_flow_classes)
    while True:
        link_names = np.full(n_link_classes, n_flow_classes)
        np.minimum.at(link_names, link_classes, names[class_of])
        spread = names.copy()
        np.minimum.at(spread, class_of, link_names[link_classes])
        # Whoever a flow class is named after may have a lower name by now.
        spread = spread[spread]
        if (spread == names).all():
            return names
        names = spread


ENTRIES: Final = 1 << 17
"""Entries of route sets in one batch, which fits the processor's cache; a single route set may have more."""
TABLE: Final = 1 << 20
"""Product of route sets and link classes in one batch; a single route set may have more link classes."""

_CAPACITY: Final = -1
_LABEL: Final = -2
"""Hashed like entries, as if of flow classes that there are not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Loads of some flow classes on links, flow class by flow class."""

    flow_classes: IntArray
    places: IntArray
    """The links or, once these are known, their link classes; ascending within a flow class."""
    flows: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return all entries of all parts."""
        return cls(
            flow_classes=np.concatenate([np.zeros(0, dtype=np.int64), *(part.flow_classes for part in parts)]),
            places=np.concatenate([np.zeros(0, dtype=np.int64), *(part.places for part in parts)]),
            flows=np.concatenate([np.zeros(0), *(part.flows for part in parts)]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alike:
    """Links in link classes, and what one link of each link class carries."""

    first_link: IntArray
    """The lowest link of each link class, ascending."""
    class_of_link: NDArray[np.int32]
    """For each link of the cluster; -1 for those that nothing crosses."""
    entries: Entries
    """Entries of the first links, by link class."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Links:
    """The links that anything crosses."""

    ids: IntArray
    place_of: NDArray[np.int32]
    """For each link its place in ``ids``; anything for links that nothing crosses."""
    n_entries: IntArray
    capacity_bytes_per_s: FloatArray
    labels: IntArray

    def hashes(self, route_sets: Sequence[RouteSet], seed: int) -> KeyArray:
        """Return for each link the sum of the hashes of its entries; a sum does not depend on their order."""
        found = np.zeros(len(self.ids), dtype=np.uint64)
        for some in _batches(route_sets, len(route_sets)):
            np.add.at(found, self.place_of[some.places], pair_keys(seed, some.flow_classes, some.flows.view(np.int64)))
        for flow_class, value in ((_CAPACITY, self.capacity_bytes_per_s.view(np.int64)), (_LABEL, self.labels)):
            found += pair_keys(seed, np.full(len(value), flow_class, dtype=np.int64), value)
        return found

    def differ_from(self, others: IntArray) -> bool:
        """Return whether any link differs from the one at another place in anything but what crosses it."""
        return any(bool((values != values[others]).any()) for values in (self.n_entries, self.capacity_bytes_per_s, self.labels))


def links_alike(route_sets: Sequence[RouteSet], capacity_bytes_per_s: FloatArray | LinkFloats, labels: IntArray | LinkInts) -> Alike:
    """Return link classes: links crossed by the same flows, with equal capacity and label.

    Parameters
    ----------
    route_sets
        Of each flow class.
    capacity_bytes_per_s, labels
        Of every link of the cluster.

    Notes
    -----
    Links of one hash are taken for a class. Then each is compared with the first of the class: it has to be equal in capacity, label
    and number of entries, and in each entry. Where a hash stood for links that differ, another seed is tried.
    """
    n_links = len(capacity_bytes_per_s)
    links = _crossed(route_sets, capacity_bytes_per_s, labels)
    ids = links.ids
    seed, entries = -1, None
    first, class_of_link = np.zeros(0, dtype=np.int64), np.full(n_links, -1, dtype=np.int32)
    while entries is None:
        seed += 1
        first, link_classes = _numbered(links.hashes(route_sets, seed))
        if not links.differ_from(first[link_classes]):
            class_of_link[ids] = link_classes
            entries = _of_first_links(route_sets, ids[first], class_of_link)
    return Alike(first_link=ids[first], class_of_link=class_of_link, entries=entries)


def _crossed(route_sets: Sequence[RouteSet], capacity_bytes_per_s: FloatArray | LinkFloats, labels: IntArray | LinkInts) -> _Links:
    is_crossed = np.zeros(len(labels), dtype=np.bool_)
    for each in route_sets:
        is_crossed[each.link_ids] = True
    ids, place_of = np.flatnonzero(is_crossed), np.empty(len(labels), dtype=np.int32)
    place_of[ids] = np.arange(len(ids), dtype=np.int32)
    n_entries = np.zeros(len(ids), dtype=np.int64)
    for some in _batches(route_sets, len(route_sets)):
        np.add.at(n_entries, place_of[some.places], 1)
    capacity_bytes_per_s = capacity_bytes_per_s[ids].astype(np.float64)
    return _Links(ids=ids, place_of=place_of, n_entries=n_entries, capacity_bytes_per_s=capacity_bytes_per_s, labels=labels[ids])


def _numbered(hashes: KeyArray) -> tuple[IntArray, IntArray]:
    """Return the first place of each distinct hash, ascending, and for each place the number of its hash in that order."""
    distinct = np.unique(hashes)
    link_classes = np.searchsorted(distinct, hashes)
    first = np.empty(len(distinct), dtype=np.int64)
    # Of several values for one place the last is kept.
    first[link_classes[::-1]] = np.arange(len(hashes) - 1, -1, -1, dtype=np.int64)
    order = np.argsort(first)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order), dtype=np.int64)
    return first[order], numbers[link_classes]


def _of_first_links(route_sets: Sequence[RouteSet], first_link: IntArray, class_of_link: NDArray[np.int32]) -> Entries | None:
    """Return the entries on the first link of each link class; None where those of another link of a link class differ from them."""
    n_link_classes = len(first_link)
    found: list[Entries] = []
    for some in _batches(route_sets, max(1, TABLE // max(1, n_link_classes))):
        link_classes = class_of_link[some.places].astype(np.int64)
        firsts = first_link[link_classes] == some.places
        kept = Entries(flow_classes=some.flow_classes[firsts], places=link_classes[firsts], flows=some.flows[firsts])
        begin = int(some.flow_classes[0])
        table = np.full((int(some.flow_classes[-1]) + 1 - begin, n_link_classes), np.nan)
        table[kept.flow_classes - begin, kept.places] = kept.flows
        # With as many entries as the first link and each of them among its own, a link has the same.
        if (table[some.flow_classes - begin, link_classes] != some.flows).any():
            return None
        found.append(kept)
    return Entries.joined(found)


def _batches(route_sets: Sequence[RouteSet], most_classes: int) -> Iterator[Entries]:
    """Give the entries of all route sets, those of several together as long as they are few."""
    begin = 0
    while begin < len(route_sets):
        end, n_entries = begin + 1, len(route_sets[begin].link_ids)
        while end < min(len(route_sets), begin + most_classes) and n_entries + len(route_sets[end].link_ids) <= ENTRIES:
            n_entries += len(route_sets[end].link_ids)
            end += 1
        some = route_sets[begin:end]
        if n_entries:
            alone = end == begin + 1
            yield Entries(
                flow_classes=np.repeat(np.arange(begin, end, dtype=np.int64), [len(each.link_ids) for each in some]),
                places=some[0].link_ids if alone else np.concatenate([each.link_ids for each in some]),
                flows=some[0].flows if alone else np.concatenate([each.flows for each in some]),
            )
        begin = end
