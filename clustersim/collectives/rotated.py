"""Groups and pairs that a node symmetry maps to each other: the flows of the lowest ranks represent all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clustersim.collectives.collective_flows import routed
from clustersim.collectives.direct import sends
from clustersim.collectives.pattern import Flows, FlowSet, Grouping, Pattern
from clustersim.topology.cluster import FABRIC, FloatArray, IntArray, RankTable, Rotation, ascending
from clustersim.topology.link_demand import Crossings, RouteSet, summed, taken
from clustersim.topology.trees import BundledTree
from clustersim.topology.wired import Cluster


class NotAlikeError(Exception):
    """Something changes under the node symmetry, or may change, so that all flows are needed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepresentativeGroups:
    """Representatives of some groups or pairs under a node symmetry: those with the lowest ranks."""

    members: IntArray
    """Ascending in each row; of pairs, the sender and the receiver."""
    places: IntArray
    """Positions of the lowest ranks in each row."""
    moved: IntArray
    """For each place in a row, the place of its image in another row."""

    @property
    def lowest(self) -> IntArray:
        """Return the lowest ranks of each row."""
        return self.members[:, self.places]

    def part(self, chosen: IntArray) -> RepresentativeGroups:
        """Return some of the rows."""
        return RepresentativeGroups(members=self.members[chosen], places=self.places, moved=self.moved)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Representatives of some groups or pairs."""

    rows: RepresentativeGroups
    row_of: IntArray
    """For each group or pair the row of its representative, which is the first of its class."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotated:
    """Prepared patterns of a cluster with a node symmetry: flows of the lowest ranks, on the lowest of equivalent links.

    A link carries what the flows of all ranks put on it: under the rotation, flows go to other flows and links to other links, so that
    those of the lowest ranks, rotated, are all that there are.
    """

    cluster: Cluster
    rotation: Rotation
    _rows: dict[int, tuple[IntArray, RepresentativeGroups]] = field(default_factory=dict[int, tuple[IntArray, RepresentativeGroups]])
    """By identity of the groups or pairs, which therefore must live."""
    _laid: dict[tuple[int, bytes], tuple[RouteSet, Crossings]] = field(default_factory=dict[tuple[int, bytes], tuple[RouteSet, Crossings]])
    """By identity of the groups, or pairs, and by the flows of one group: what several algorithms let flow, or several operations."""
    _parts: dict[int, tuple[IntArray, IntArray]] = field(default_factory=dict[int, tuple[IntArray, IntArray]])
    """By identity of some groups or pairs, their source, and the rows of the representatives."""
    _flow_sets: dict[tuple[int, ...], FlowSet] = field(default_factory=dict[tuple[int, ...], FlowSet])
    """By identities of cached patterns."""
    _alike: set[int] = field(default_factory=set[int])
    """Identities of groups with equal layout."""

    def groups(self, members: IntArray) -> Standing:
        """Return the representatives of some groups.

        Parameters
        ----------
        members
            Shape (n_groups, size): ranks, in any order.

        Raises
        ------
        NotAlikeError
            The rotation does not make groups of groups, or groups of one orbit do not have their lowest ranks at the same places.
        """
        found = _groups(self.rotation, members)
        self.know(members, found.rows)
        return found

    def pairs(self, pairs: IntArray) -> Standing:
        """Return the representatives of some pairs.

        Raises
        ------
        NotAlikeError
            The rotation does not make pairs of pairs, a rank sends to several, or one end of a pair is a lowest rank and the other is not.
        """
        found = _pairs(self.rotation, pairs)
        self.know(pairs, found.rows)
        return found

    def know(self, members: IntArray, rows: RepresentativeGroups) -> None:
        """Store the representatives of some groups or pairs."""
        self._rows.setdefault(id(members), (members, rows))

    def know_part(self, members: IntArray, whole: IntArray, chosen: IntArray) -> None:
        """Store the representatives of some groups or pairs, all taken from known ones.

        Parameters
        ----------
        chosen
            Of the rows that stand for the whole those that stand for the part.
        """
        self.know(members, self._known(whole).part(chosen))
        self._parts[id(members)] = whole, chosen

    def lie(self, group: IntArray) -> bytes:
        """Return the cache key of groups with equal patterns: places in nodes, and which nodes, domains, leaves and pods are the same.

        In a cluster with a rotation all nodes are alike, and all leaves and pods: they are as built for nodes of one kind.
        """
        nodes, places = np.divmod(group, self.rotation.per_node)
        domains, fabric = self.cluster.domain_of(group), self.cluster.scale_out
        above = [nodes, domains]
        if isinstance(fabric, BundledTree) and (domains != domains[0]).any():
            leaves = self.cluster.leaf_of(group)
            above += [leaves, fabric.leaves.pod_of(leaves)]
        return places.tobytes() + b"".join((numbers - numbers[0]).tobytes() for numbers in above)

    def pattern(self, members: IntArray, first: Grouping, alone: Pattern) -> Pattern:
        """Return the pattern of an algorithm for all groups, given the pattern of the first group alone.

        An algorithm knows of a group only how its members lie, so that in groups that lie alike the same places send to each other.

        Raises
        ------
        NotAlikeError
            The groups do not lie alike, the flows of a group change under the rotation, or it is not known between which ranks
            each of them runs.
        """
        self._check_layout(members, first)
        phases = tuple(tuple(self._flow_set(flow_set, members, first.members[0]) for flow_set in phase) for phase in alone.phases)
        return Pattern(phases=phases, uniform=alone.uniform)

    def lowest(self, pairs: IntArray) -> IntArray:
        """Return the pairs of lowest ranks among some known pairs."""
        return self._known(pairs).members

    def transfers(self, pairs: IntArray) -> Pattern:
        """Return sends over pairs of ranks, those of the lowest ranks for all."""
        members = self.lowest(pairs)
        load, flows = self._laid_once(pairs, b"", lambda: self._routed(members[:, 0], members[:, 1], np.ones(len(members))))
        leaves = bool((self.cluster.domain_of(members[:, 0]) != self.cluster.domain_of(members[:, 1])).any())
        return sends(flows, self._of_all_ranks(load), leaves=leaves)

    def _known(self, members: IntArray) -> RepresentativeGroups:
        found = self._rows.get(id(members))
        if found is None:
            raise NotAlikeError
        return found[1]

    def _check_layout(self, groups: IntArray, first: Grouping) -> None:
        """Raise a NotAlikeError where groups leave domains at different places, or members of one domain have different places in nodes."""
        whole, _ = self._parts.get(id(groups), (groups, None))
        if id(whole) in self._alike:
            return
        members = self._known(groups).members
        numbers = members % self.rotation.per_node
        domains = self.cluster.domain_of(members.reshape(-1)).reshape(members.shape)
        leaves = domains[:, 1:] != domains[:, :-1]
        if not first.per_domain or (leaves != leaves[:1]).any() or (first.per_domain > 1 and (numbers != numbers[:1]).any()):
            raise NotAlikeError
        self._alike.add(id(groups))

    def _flow_set(self, flow_set: FlowSet, groups: IntArray, first: IntArray) -> FlowSet:
        if not flow_set.flows:
            raise NotAlikeError
        laid = [self._of_all_groups(flows, each, groups, first) for flows, each in zip(flow_set.flows, flow_set.crossings, strict=True)]
        key = tuple(id(load) for load, _ in laid)
        if key not in self._flow_sets:
            loads, crossings = [load for load, _ in laid if len(load.link_ids)], tuple(each for _, each in laid)
            longest_s = [float(each.latency_s.max(initial=0.0)) for each in crossings]
            self._flow_sets[key] = FlowSet(
                route_set=self._of_all_ranks(loads[0] if len(loads) == 1 else summed(*_columns(loads))),
                share=flow_set.share,
                intra_steps=flow_set.intra_steps,
                inter_steps=flow_set.inter_steps,
                intra_latency_s=longest_s[0],
                inter_latency_s=longest_s[1],
                crossings=crossings,
            )
        return replace(
            self._flow_sets[key],
            share=flow_set.share,
            intra_steps=flow_set.intra_steps,
            inter_steps=flow_set.inter_steps,
            relays=flow_set.relays,
            channels=flow_set.channels,
        )

    def _of_all_groups(self, flows: Flows, crossings: Crossings, groups: IntArray, first: IntArray) -> tuple[RouteSet, Crossings]:
        """Return the flows of the lowest ranks of all groups, given all flows of one group of equal layout."""
        sources, destinations = (np.searchsorted(first, ends) for ends in (flows.sources, flows.destinations))
        rows, counts = self._known(groups), flows.counts

        def lay() -> tuple[RouteSet, Crossings]:
            _check_moved(sources, destinations, counts, rows.moved)
            if (counts != np.rint(counts)).any():
                # Sums of whole numbers are the same in any order; and over bundles of cables flows are not divided.
                raise NotAlikeError
            own = np.flatnonzero(np.isin(sources, rows.places))
            if len(own) == len(sources) and np.array_equal(rows.members, first[None]):
                return self._lowered(crossings)
            here, there = (rows.members[:, places[own]].reshape(-1) for places in (sources, destinations))
            return self._routed(here, there, np.tile(counts[own], len(rows.members)))

        return self._laid_once(groups, b"".join(each.tobytes() for each in (sources, destinations, counts)), lay)

    def _laid_once(self, members: IntArray, flows: bytes, lay: Callable[[], tuple[RouteSet, Crossings]]) -> tuple[RouteSet, Crossings]:
        """Return a pattern from the cache, or taken from the pattern of the whole."""
        key = id(members), flows
        if key not in self._laid:
            whole, chosen = self._parts.get(id(members), (members, None))
            found = self._laid.get((id(whole), flows))
            if found is None or chosen is None:
                self._laid[key] = lay()
            else:
                per_row = len(found[1].ranks) // len(self._known(whole).members)
                crossings = taken(found[1], (chosen[:, None] * per_row + np.arange(per_row, dtype=np.int64)).reshape(-1))
                self._laid[key] = summed(crossings.link_ids, crossings.amounts), crossings
        return self._laid[key]

    def _routed(self, sources: IntArray, destinations: IntArray, counts: FloatArray) -> tuple[RouteSet, Crossings]:
        return self._lowered(routed(self.cluster, Flows(sources=sources, destinations=destinations, counts=counts)))

    def _lowered(self, crossings: Crossings) -> tuple[RouteSet, Crossings]:
        """Return the loads of flows on the lowest of equivalent links, and the flows with these links.

        On the fabric all links of the lowest ranks' flows must be lowest ones themselves, or stay where they are, so that links that are
        neighbours stay neighbours.
        """
        load = summed(crossings.link_ids, crossings.amounts)
        lowest = self.rotation.lowest_link[load.link_ids].astype(np.int64)
        if (lowest == load.link_ids).all():
            return load, crossings
        if np.isin(self.cluster.tier_index[load.link_ids], FABRIC).any():
            raise NotAlikeError
        return summed(lowest, load.flows), replace(crossings, link_ids=self.rotation.lowest_link[crossings.link_ids].astype(np.int64))

    def _of_all_ranks(self, load: RouteSet) -> RouteSet:
        """Return the loads of all ranks on the lowest of equivalent links, given the loads of the lowest ranks.

        A flow on a link that moves is one of as many on as many links; on one that stays it is one of as many on the same.
        """
        times = np.where(self.rotation.n_alike[load.link_ids] == 1, float(self.rotation.n_rotations), 1.0)
        return RouteSet(link_ids=load.link_ids, flows=load.flows * times)


def _columns(loads: Sequence[RouteSet]) -> tuple[IntArray, FloatArray]:
    links, flows = [load.link_ids for load in loads], [load.flows for load in loads]
    return np.concatenate([np.zeros(0, dtype=np.int64), *links]), np.concatenate([np.zeros(0), *flows])


def _groups(rotation: Rotation, members: IntArray) -> Standing:
    ordered = ascending(members)
    numbers = np.arange(len(ordered), dtype=np.int64)
    if not _distinct(ordered):
        raise NotAlikeError
    lowest = rotation.lowest_rank[ordered]
    is_lowest = lowest == ordered
    kept = np.flatnonzero(is_lowest.any(axis=1))
    if not len(kept) or (is_lowest[kept] != is_lowest[kept[0]]).any():
        raise NotAlikeError
    places = np.flatnonzero(is_lowest[kept[0]])
    row_of = RankTable.among(ordered, rotation.per_node)
    row_of[ordered[kept][:, places]] = np.arange(len(kept), dtype=np.int64)[:, None]
    standing = row_of[lowest]
    if (standing != standing[:, :1]).any() or (standing[:, 0] < 0).any() or (kept[standing[:, 0]] > numbers).any():
        raise NotAlikeError
    after = rotation.rotated_rank[ordered]
    order = np.argsort(after[0])
    after = after[:, order]
    row_of[ordered[:, 0]] = numbers
    if (ordered[row_of[after[:, 0]]] != after).any():
        raise NotAlikeError
    rows = RepresentativeGroups(members=ordered[kept], places=places, moved=np.argsort(order))
    return Standing(rows=rows, row_of=standing[:, 0].copy())


def _pairs(rotation: Rotation, pairs: IntArray) -> Standing:
    numbers = np.arange(len(pairs), dtype=np.int64)
    sources, destinations = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    lowest = rotation.lowest_rank[sources]
    is_lowest = lowest == sources
    if not _distinct(sources) or (is_lowest != (rotation.lowest_rank[destinations] == destinations)).any():
        raise NotAlikeError
    row_of = RankTable.among(sources, rotation.per_node)
    row_of[sources] = numbers
    after = row_of[rotation.rotated_rank[sources]]
    if (after < 0).any() or (destinations[after] != rotation.rotated_rank[destinations]).any():
        raise NotAlikeError
    kept = np.flatnonzero(is_lowest)
    row_of[sources[kept]] = np.arange(len(kept), dtype=np.int64)
    standing = row_of[lowest]
    if (kept[standing] > numbers).any():
        raise NotAlikeError
    ends = np.arange(2, dtype=np.int64)
    return Standing(rows=RepresentativeGroups(members=pairs[kept], places=ends, moved=ends), row_of=standing)


def _distinct(ranks: IntArray) -> bool:
    first = int(ranks.min())
    seen = np.zeros(int(ranks.max()) + 1 - first, dtype=np.bool_)
    seen[ranks - first] = True
    return int(seen.sum()) == ranks.size


def _check_moved(sources: IntArray, destinations: IntArray, counts: FloatArray, moved: IntArray) -> None:
    """Raise a NotAlikeError where the symmetry changes the flows of a group."""
    if (moved[1:] > moved[:-1]).all():
        return
    before = np.stack((sources, destinations, counts.view(np.int64)))
    after = np.stack((moved[sources], moved[destinations], counts.view(np.int64)))
    if (before[:, np.lexsort(before)] != after[:, np.lexsort(after)]).any():
        raise NotAlikeError
