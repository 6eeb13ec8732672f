"""Links that no flow class tells apart, found by hashing what crosses each of them and checked exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.hashing import KeyArray, pair_keys
from clustersim.topology.link_demand import Footprint

ENTRIES: Final = 1 << 17
"""Entries of footprints that are looked at together, so that they stay in the processor's cache; a single footprint may have more."""
TABLE: Final = 1 << 20
"""Footprints times link classes that are looked at together; a single footprint may have more link classes."""

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
    class_of_link: IntArray
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

    def hashes(self, footprints: Sequence[Footprint], seed: int) -> KeyArray:
        """Return for each link the sum of the hashes of all that is said of it; a sum, because it has no order."""
        found = np.zeros(len(self.ids), dtype=np.uint64)
        for some in _batches(footprints, len(footprints)):
            np.add.at(found, self.place_of[some.places], pair_keys(seed, some.flow_classes, some.flows.view(np.int64)))
        for flow_class, value in ((_CAPACITY, self.capacity_bytes_per_s.view(np.int64)), (_LABEL, self.labels)):
            found += pair_keys(seed, np.full(len(value), flow_class, dtype=np.int64), value)
        return found

    def differ_from(self, others: IntArray) -> bool:
        """Return whether any link differs from the one at another place in anything but what crosses it."""
        return any(bool((values != values[others]).any()) for values in (self.n_entries, self.capacity_bytes_per_s, self.labels))


def links_alike(footprints: Sequence[Footprint], capacity_bytes_per_s: FloatArray, labels: IntArray) -> Alike:
    """Return links that are crossed alike, and have equal capacity and label, as one link class each.

    Parameters
    ----------
    footprints
        Of each flow class.
    capacity_bytes_per_s, labels
        Of every link of the cluster.

    Notes
    -----
    Links of one hash are taken for a class. Then each is compared with the first of the class: it has to be equal in capacity, label
    and number of entries, and in each entry. Where a hash stood for links that differ, another seed is tried.
    """
    n_links = len(capacity_bytes_per_s)
    links = _crossed(footprints, capacity_bytes_per_s, labels)
    ids = links.ids
    seed, entries = -1, None
    first, class_of_link = np.zeros(0, dtype=np.int64), np.full(n_links, -1, dtype=np.int64)
    while entries is None:
        seed += 1
        first, link_classes = _numbered(links.hashes(footprints, seed))
        if not links.differ_from(first[link_classes]):
            class_of_link[ids] = link_classes
            entries = _of_first_links(footprints, ids[first], class_of_link)
    return Alike(first_link=ids[first], class_of_link=class_of_link, entries=entries)


def _crossed(footprints: Sequence[Footprint], capacity_bytes_per_s: FloatArray, labels: IntArray) -> _Links:
    is_crossed = np.zeros(len(labels), dtype=np.bool_)
    for each in footprints:
        is_crossed[each.link_ids] = True
    ids, place_of = np.flatnonzero(is_crossed), np.empty(len(labels), dtype=np.int32)
    place_of[ids] = np.arange(len(ids), dtype=np.int32)
    n_entries = np.zeros(len(ids), dtype=np.int64)
    for some in _batches(footprints, len(footprints)):
        n_entries += np.bincount(place_of[some.places], minlength=len(ids))
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


def _of_first_links(footprints: Sequence[Footprint], first_link: IntArray, class_of_link: IntArray) -> Entries | None:
    """Return the entries on the first link of each link class; None where those of another link of a link class differ from them."""
    n_link_classes = len(first_link)
    found: list[Entries] = []
    for some in _batches(footprints, max(1, TABLE // max(1, n_link_classes))):
        link_classes = class_of_link[some.places]
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


def _batches(footprints: Sequence[Footprint], most_classes: int) -> Iterator[Entries]:
    """Give the entries of all footprints, those of several together as long as they are few."""
    begin = 0
    while begin < len(footprints):
        end, n_entries = begin + 1, len(footprints[begin].link_ids)
        while end < min(len(footprints), begin + most_classes) and n_entries + len(footprints[end].link_ids) <= ENTRIES:
            n_entries += len(footprints[end].link_ids)
            end += 1
        some = footprints[begin:end]
        if n_entries:
            yield Entries(
                flow_classes=np.repeat(np.arange(begin, end, dtype=np.int64), [len(each.link_ids) for each in some]),
                places=np.concatenate([each.link_ids for each in some]),
                flows=np.concatenate([each.flows for each in some]),
            )
        begin = end
