"""Groups and pairs that take each other's places when the accelerators of every node turn: the flows of the lowest ranks stand for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clustersim.collectives.flows import routed
from clustersim.collectives.pattern import Flows, Grouping, Pattern, Wave
from clustersim.collectives.transfers import lay_transfers
from clustersim.topology.cluster import TIERS, Cluster, FloatArray, IntArray, Rotation
from clustersim.topology.load import Crossings, Footprint, summed

_FABRIC = (TIERS.index("leaf"), TIERS.index("spine"))


class NotAlikeError(Exception):
    """Something changes with a turn, or may do so: all of it has to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Those of some groups or pairs that stand for the others, whose places they take in a turn: the ones with lowest ranks."""

    members: IntArray
    """Ascending in each row; of pairs, the sender and the receiver."""
    places: IntArray
    """Where the lowest ranks stand in each row."""
    moved: IntArray
    """For each place in a row, at which place of another row its member stands after a turn."""

    @property
    def lowest(self) -> IntArray:
        """Return the lowest ranks of each row."""
        return self.members[:, self.places]

    def part(self, chosen: IntArray) -> Rows:
        """Return some of the rows."""
        return Rows(members=self.members[chosen], places=self.places, moved=self.moved)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Which of some groups or pairs stand for which."""

    rows: Rows
    row_of: IntArray
    """For each group or pair the row that stands for it, which is the first of those that it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotated:
    """What is laid on a cluster that a turn leaves as it is: flows of the lowest ranks, on the lowest of links that are alike.

    A link carries what the flows of all ranks put on it: with a turn, flows go to other flows and links to other links, so that
    those of the lowest ranks, turned, are all that there are.
    """

    cluster: Cluster
    rotation: Rotation
    _rows: dict[int, tuple[IntArray, Rows]] = field(default_factory=dict[int, tuple[IntArray, Rows]])
    """By identity of the groups or pairs, which therefore must live."""
    _laid: dict[tuple[int, bytes], tuple[Footprint, Crossings]] = field(
        default_factory=dict[tuple[int, bytes], tuple[Footprint, Crossings]]
    )
    """By identity of the groups and by the flows of the first: what several algorithms let flow, or several operations."""
    _waves: dict[tuple[int, ...], Wave] = field(default_factory=dict[tuple[int, ...], Wave])
    """By identities of what is laid."""
    _alike: set[int] = field(default_factory=set[int])
    """Identities of groups that lie alike."""

    def groups(self, members: IntArray) -> Standing:
        """Return which of some groups stand for which.

        Parameters
        ----------
        members
            Shape (n_groups, size): ranks, in any order.

        Raises
        ------
        NotAlikeError
            A turn does not make groups of groups, or groups of one turn do not have their lowest ranks at the same places.
        """
        found = _groups(self.rotation, members)
        self.know(members, found.rows)
        return found

    def pairs(self, pairs: IntArray) -> Standing:
        """Return which of some pairs stand for which.

        Raises
        ------
        NotAlikeError
            A turn does not make pairs of pairs, a rank sends to several, or one end of a pair is a lowest rank and the other is not.
        """
        found = _pairs(self.rotation, pairs)
        self.know(pairs, found.rows)
        return found

    def know(self, members: IntArray, rows: Rows) -> None:
        """Keep in mind which of some groups or pairs stand for the others."""
        self._rows.setdefault(id(members), (members, rows))

    def lie(self, group: IntArray) -> bytes:
        """Return what is the same for groups that do all alike: their members, or where in a node these stand if they are all in one.

        In a cluster that can turn every node is like the others.
        """
        nodes = group // self.rotation.per_node
        inside = bool((nodes == nodes[0]).all())
        return inside.to_bytes() + (group % self.rotation.per_node if inside else group).tobytes()

    def pattern(self, members: IntArray, first: Grouping, alone: Pattern) -> Pattern:
        """Return what an algorithm does in all groups, given what it does in the first of them by itself.

        An algorithm knows of a group only how its members lie, so that in groups that lie alike the same places send to each other.

        Raises
        ------
        NotAlikeError
            The groups do not lie alike, the flows of a group change with a turn, or it is not known between which ranks each of them runs.
        """
        self._check_layout(members, first)
        phases = tuple(tuple(self._wave(wave, members, first.members[0]) for wave in phase) for phase in alone.phases)
        return Pattern(phases=phases, uniform=alone.uniform)

    def lowest(self, pairs: IntArray) -> IntArray:
        """Return the pairs of lowest ranks among some that are known."""
        return self._known(pairs).members

    def transfers(self, pairs: IntArray) -> Pattern:
        """Return sends over pairs of ranks, those of the lowest ranks for all."""
        members = self.lowest(pairs)
        pattern = lay_transfers(self.cluster, members[:, 0], members[:, 1])
        ((wave,),) = pattern.phases
        return replace(pattern, phases=((self._summed(wave, [self._lowered(each) for each in wave.crossings]),),))

    def _known(self, members: IntArray) -> Rows:
        found = self._rows.get(id(members))
        if found is None:
            raise NotAlikeError
        return found[1]

    def _check_layout(self, groups: IntArray, first: Grouping) -> None:
        """Raise a NotAlikeError where groups differ in the places that their members have in nodes, or in where they leave domains."""
        if id(groups) in self._alike:
            return
        members = self._known(groups).members
        numbers = members % self.rotation.per_node
        domains = self.cluster.domain_of(members.reshape(-1)).reshape(members.shape)
        leaves = domains[:, 1:] != domains[:, :-1]
        if not first.per_domain or (numbers != numbers[:1]).any() or (leaves != leaves[:1]).any():
            raise NotAlikeError
        self._alike.add(id(groups))

    def _wave(self, wave: Wave, groups: IntArray, first: IntArray) -> Wave:
        if len(wave.flows) != len(wave.crossings):
            raise NotAlikeError
        laid = [self._of_all(flows, groups, first) for flows in wave.flows]
        key = tuple(id(load) for load, _ in laid)
        if key not in self._waves:
            longest_s = [float(crossings.latency_s.max(initial=0.0)) for _, crossings in laid]
            self._waves[key] = self._summed(replace(wave, intra_latency_s=longest_s[0], inter_latency_s=longest_s[1]), laid)
        found = self._waves[key]
        return replace(found, share=wave.share, intra_steps=wave.intra_steps, inter_steps=wave.inter_steps)

    def _of_all(self, flows: Flows, groups: IntArray, first: IntArray) -> tuple[Footprint, Crossings]:
        """Return the flows of the lowest ranks of all groups, given all those of the first group."""
        key = id(groups), b"".join(each.tobytes() for each in (flows.sources, flows.destinations, flows.counts))
        if key not in self._laid:
            rows = self._known(groups)
            sources, destinations = (np.searchsorted(first, ends) for ends in (flows.sources, flows.destinations))
            _check_moved(sources, destinations, flows.counts, rows.moved)
            if (flows.counts != np.rint(flows.counts)).any():
                # Sums of whole numbers are the same in any order; and over bundles of cables flows are not divided.
                raise NotAlikeError
            own = np.flatnonzero(np.isin(sources, rows.places))
            lowest = Flows(
                sources=rows.members[:, sources[own]].reshape(-1),
                destinations=rows.members[:, destinations[own]].reshape(-1),
                counts=np.tile(flows.counts[own], len(rows.members)),
            )
            self._laid[key] = self._lowered(routed(self.cluster, lowest))
        return self._laid[key]

    def _lowered(self, crossings: Crossings) -> tuple[Footprint, Crossings]:
        """Return what flows put on the lowest of links that are alike, and the flows with these in the place of each.

        On the fabric all links of the lowest ranks' flows must be lowest ones themselves, or stay where they are, so that links that are
        neighbours stay neighbours.
        """
        load = summed(crossings.link_ids, crossings.amounts)
        lowest = self.rotation.lowest_link[load.link_ids]
        if (lowest == load.link_ids).all():
            return load, crossings
        if np.isin(self.cluster.tier_index[load.link_ids], _FABRIC).any():
            raise NotAlikeError
        return summed(lowest, load.flows), replace(crossings, link_ids=self.rotation.lowest_link[crossings.link_ids])

    def _summed(self, wave: Wave, laid: Sequence[tuple[Footprint, Crossings]]) -> Wave:
        """Return a wave of all ranks, given the flows of the lowest ranks.

        A flow on a link that turns is one of as many on as many links; on one that stays it is one of as many on the same.
        """
        loads = [load for load, _ in laid if len(load.link_ids)]
        total = loads[0] if len(loads) == 1 else summed(*(np.concatenate(each) for each in _columns(loads)))
        times = self.rotation.n_turns // self.rotation.n_alike[total.link_ids]
        footprint = Footprint(link_ids=total.link_ids, flows=total.flows * times)
        return replace(wave, footprint=footprint, crossings=tuple(crossings for _, crossings in laid), flows=())


def _columns(loads: Sequence[Footprint]) -> tuple[list[IntArray], list[FloatArray]]:
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    return [nothing[0], *(load.link_ids for load in loads)], [nothing[1], *(load.flows for load in loads)]


def _groups(rotation: Rotation, members: IntArray) -> Standing:
    ordered = np.sort(members, axis=1)
    n_ranks, numbers = len(rotation.lowest_rank), np.arange(len(ordered), dtype=np.int64)
    if not _distinct(ordered, n_ranks):
        raise NotAlikeError
    lowest = rotation.lowest_rank[ordered]
    is_lowest = lowest == ordered
    kept = np.flatnonzero(is_lowest.any(axis=1))
    if not len(kept) or (is_lowest[kept] != is_lowest[kept[0]]).any():
        raise NotAlikeError
    places = np.flatnonzero(is_lowest[kept[0]])
    row_of = np.full(n_ranks, -1, dtype=np.int64)
    row_of[ordered[kept][:, places]] = np.arange(len(kept), dtype=np.int64)[:, None]
    standing = row_of[lowest]
    if (standing != standing[:, :1]).any() or (standing[:, 0] < 0).any() or (kept[standing[:, 0]] > numbers).any():
        raise NotAlikeError
    after = rotation.turned_rank[ordered]
    order = np.argsort(after[0])
    after = after[:, order]
    row_of[ordered[:, 0]] = numbers
    if (ordered[row_of[after[:, 0]]] != after).any():
        raise NotAlikeError
    rows = Rows(members=ordered[kept], places=places, moved=np.argsort(order))
    return Standing(rows=rows, row_of=standing[:, 0].copy())


def _pairs(rotation: Rotation, pairs: IntArray) -> Standing:
    n_ranks, numbers = len(rotation.lowest_rank), np.arange(len(pairs), dtype=np.int64)
    is_lowest = rotation.lowest_rank[pairs] == pairs
    kept = np.flatnonzero(is_lowest[:, 0])
    if not _distinct(pairs[:, 0], n_ranks) or (is_lowest[:, 0] != is_lowest[:, 1]).any():
        raise NotAlikeError
    row_of = np.full(n_ranks, -1, dtype=np.int64)
    row_of[pairs[:, 0]] = numbers
    after = rotation.turned_rank[pairs]
    if (pairs[row_of[after[:, 0]]] != after).any():
        raise NotAlikeError
    row_of[pairs[kept, 0]] = np.arange(len(kept), dtype=np.int64)
    standing = row_of[rotation.lowest_rank[pairs[:, 0]]]
    if (kept[standing] > numbers).any():
        raise NotAlikeError
    ends = np.arange(2, dtype=np.int64)
    return Standing(rows=Rows(members=pairs[kept], places=ends, moved=ends), row_of=standing)


def _distinct(ranks: IntArray, n_ranks: int) -> bool:
    seen = np.zeros(n_ranks, dtype=np.bool_)
    seen[ranks] = True
    return int(seen.sum()) == ranks.size


def _check_moved(sources: IntArray, destinations: IntArray, counts: FloatArray, moved: IntArray) -> None:
    """Raise a NotAlikeError where the flows of a group, by places, are not the same after a turn."""
    if (moved[1:] > moved[:-1]).all():
        return
    before = np.stack((sources, destinations, counts.view(np.int64)))
    after = np.stack((moved[sources], moved[destinations], counts.view(np.int64)))
    if (before[:, np.lexsort(before)] != after[:, np.lexsort(after)]).any():
        raise NotAlikeError
