"""The communication library of a cluster: groups and sizes in, operations out; patterns are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.choosing import Facts, channel_ceiling_bytes_per_s, choose, enabled
from clustersim.collectives.collective_flows import BATCH
from clustersim.collectives.direct import lay_transfers
from clustersim.collectives.pattern import Algorithm, Grouping, Pattern, grouping
from clustersim.collectives.push_pull import lay_pull, lay_push, lay_push_pull, lay_update
from clustersim.collectives.rotated import NotAlikeError, Rotated
from clustersim.collectives.timing import LEAST_CHANNELS, AlgorithmCandidate, Operation, Way, family_of, idle_rate_bytes_per_s, timed
from clustersim.errors import DomainError
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.hardware.calibrations import slowest
from clustersim.hardware.library_costs import CollectiveOp, Medium, Protocol, Servers
from clustersim.topology.cluster import FABRIC, TIERS, FloatArray, IntArray, LinkFloats, for_each_link, link_values
from clustersim.topology.wired import Cluster

MOST_RANKS: Final = 1 << 15
"""Maximum ranks of a cluster whose patterns are cached. Larger ones would take too much memory."""


MOST_FLOWS: Final = 1 << 14
"""Maximum flows of groups whose patterns are cached: an all-to-all has one for each pair of ranks, a ring one for each rank."""


Lay = Callable[[Cluster, Grouping], Pattern]


def laid(lay: Lay, cluster: Cluster, groups: Grouping, *, spreads: bool = False) -> Pattern:
    """Return the pattern of an algorithm for groups, ``lay(cluster, groups)``.

    Parameters
    ----------
    spreads
        Whether each rank sends to all others of its group, not to a few of them.
    """
    if cluster.n_ranks > MOST_RANKS or groups.members.size * (groups.size if spreads else 1) > MOST_FLOWS:
        return lay(cluster, groups)
    return _laid(lay, cluster, groups.members.tobytes(), groups.size)


def sent(cluster: Cluster, pairs: IntArray) -> Pattern:
    """Return sends over pairs of ranks, given as rows."""
    if cluster.n_ranks > MOST_RANKS or len(pairs) > MOST_FLOWS:
        return lay_transfers(cluster, pairs[:, 0], pairs[:, 1])
    return _sent(cluster, pairs.tobytes())


# Clusters and algorithms are compared by identity: neither ever changes, and both live as long as they are keys here.
@lru_cache(maxsize=512)
def _laid(lay: Lay, cluster: Cluster, members: bytes, size: int) -> Pattern:
    return lay(cluster, grouping(cluster, np.frombuffer(members, dtype=np.int64).reshape(-1, size)))


@lru_cache(maxsize=256)
def _sent(cluster: Cluster, pairs: bytes) -> Pattern:
    ends = np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2)
    return lay_transfers(cluster, ends[:, 0], ends[:, 1])


IDLE: Final = Operation(algorithm="none", protocol="none", phases=())
"""Empty operation, of a group of one rank."""

OFFERED: Final[Mapping[CollectiveOp, tuple[str, ...]]] = MappingProxyType(
    {
        "all_reduce": ("ring", "tree", "sharp", "nvls", "nvls_tree"),
        "all_gather": ("ring", "pat"),
        "reduce_scatter": ("ring", "pat"),
        "all_to_all": ("direct", "hierarchical"),
        "broadcast": ("ring",),
        "reduce": ("ring",),
        "gather": ("direct",),
        "scatter": ("direct",),
        "send_recv": ("direct",),
    }
)
"""Choices of ``auto``: the algorithms that the library has."""


Members = Sequence[Sequence[int]] | IntArray
"""Groups of ranks, all of one size: a row each."""

SPREADING: Final[tuple[CollectiveOp, ...]] = ("all_to_all", "gather", "scatter")
"""Operations in which a rank sends to, or receives from, many others concurrently."""

SERVED: Final[Mapping[CollectiveOp, Callable[[Cluster, Grouping, Servers], Pattern]]] = MappingProxyType(
    {"push": lay_push, "pull": lay_pull, "update": lay_update, "all_reduce": lay_push_pull}
)
"""Parameter-server patterns by operation."""


def usable_shares(cluster: Cluster, calibration: NetworkCalibration) -> LinkFloats:
    """Return which share of its data-sheet bandwidth each link really carries: the calibrated one of its tier.

    Drives have no such share: the bandwidth in their profile is one that they were seen to reach. Links inside nodes have the share of
    their kind of node, those of the fabric the least of all.
    """
    rows = [[1.0 if tier == "storage" else network.efficiency[tier] for tier in TIERS] for network in (*calibration.of_kinds, calibration)]
    if not calibration.of_kinds:
        return for_each_link(np.array(rows[0]).__getitem__, cluster.tier_index)
    # Kind -1, the fabric, finds the last row.
    return link_values(np.array(rows)[cluster.kind_of_link(), np.asarray(cluster.tier_index)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """One call of the library by each of some concurrent groups."""

    op: CollectiveOp
    group: str
    """Name of the concurrent groups; groups with the same name have the same members."""
    size_bytes: float
    """The tensor in full, over all pieces, as nccl-tests counts it."""
    algorithm: str = "auto"
    """Or a name in the row of ``ALGORITHMS``, or ``parameter_server``."""
    pieces: int = 1
    """Calls that the tensor is really spread over; each pays latency and ramp-up."""
    servers: Servers | None = None
    """For a push, a pull, or both."""


@dataclass(slots=True)
class Library:
    """Computes each pattern of each group once, and gives the link loads of each size."""

    cluster: Cluster
    calibration: NetworkCalibration
    rotated: Rotated | None = None
    """Node symmetry, or None. With it, route sets are those on the lowest of equivalent links, and flows those of the lowest ranks."""
    waited_send_s: float = 0.0
    """Host time of one wait for a transfer."""
    bandwidth_bytes_per_s: LinkFloats = field(init=False)
    """Usable, of each link."""
    _known_bytes_per_s: LinkFloats = field(init=False)
    """Bandwidth of each link as the library sees it, in bytes per second: undamaged nodes and adapters, without limits of the fabric."""
    _operations: dict[CollectiveCall, Operation] = field(default_factory=dict[CollectiveCall, Operation])
    _groups: dict[str, Grouping] = field(default_factory=dict[str, Grouping])
    _firsts: dict[str, Grouping] = field(default_factory=dict[str, Grouping])
    """First of each set of concurrent groups, alone."""
    _candidates: dict[tuple[CollectiveCall, bool], AlgorithmCandidate] = field(
        default_factory=dict[tuple[CollectiveCall, bool], AlgorithmCandidate]
    )
    """By call without a size, and whether for one group alone."""
    _layouts: dict[bytes, str] = field(default_factory=dict[bytes, str])
    """With ``rotated``, by the layout of the first group, the name of equivalent groups."""
    _facts: dict[str, Facts] = field(default_factory=dict[str, Facts])
    _transfers: dict[str, AlgorithmCandidate] = field(default_factory=dict[str, AlgorithmCandidate])
    _calibrations: dict[tuple[int, ...], NetworkCalibration] = field(default_factory=dict[tuple[int, ...], NetworkCalibration])
    """By the kinds of nodes that a group spans."""

    def __post_init__(self) -> None:
        cluster = self.cluster
        shares = usable_shares(cluster, self.calibration)
        self.bandwidth_bytes_per_s = for_each_link(np.multiply, cluster.bandwidth_bytes_per_s, shares)
        self._known_bytes_per_s = for_each_link(_known, cluster.tier_index, cluster.as_built_bytes_per_s, shares)

    def operation(self, call: CollectiveCall, members: Members) -> Operation:
        """Return the link loads of a call.

        Raises
        ------
        DomainError
            The groups or the cluster cannot run the algorithm.
        NotAlikeError
            With ``rotated``, where what the groups do changes under the rotation.
        """
        found = self._operations.get(call)
        if found is None:
            found = self._operations[call] = self._operation(call, members)
        return found

    def _operation(self, call: CollectiveCall, members: Members) -> Operation:
        ranks, rotated = np.asarray(members, dtype=np.int64), self.rotated
        asked = call
        if rotated is not None:
            # Groups that lie alike choose alike, so that the first is enough to choose by, whatever instance set it is in.
            asked = replace(call, group=self._layouts.setdefault(rotated.lie(ranks[0]), call.group))
        groups = self._groups.get(asked.group)
        if groups is None:
            groups = self._groups[asked.group] = grouping(self.cluster, ranks if rotated is None else ranks[:1])
        if groups.size == 1 and call.servers is None:
            return IDLE
        if call.servers is not None and rotated is not None:
            raise NotAlikeError
        facts = self._facts_of(asked, groups)
        candidate, protocol = self._chosen(asked, groups, facts)
        if rotated is not None:
            candidate = replace(candidate, pattern=rotated.pattern(ranks, groups, candidate.lone))
        way = Way(
            algorithm=candidate.algorithm,
            protocol=protocol,
            family=family_of(call.op, candidate.algorithm),
            medium=facts.medium,
            ceiling_bytes_per_s=channel_ceiling_bytes_per_s(candidate.algorithm, facts),
            spreads=groups.size > 2 and call.op in SPREADING,
            pair=groups.size == 2 and candidate.algorithm == "ring",
        )
        calibration = self._calibration_of(groups.members)
        return timed(candidate, way, self.cluster, calibration, size_bytes=call.size_bytes, pieces=call.pieces)

    def transfer(self, name: str, pairs: Members, *, size_bytes: float, waits_per_transfer: float = 0.0) -> Operation:
        """Return the link loads of sends of a number of bytes over each pair.

        Parameters
        ----------
        name
            Of the pairs; transfers with the same name have the same pairs.
        waits_per_transfer
            Number of waits of the hosts.
        """
        candidate, ends = self._transfers.get(name), np.asarray(pairs, dtype=np.int64)
        if candidate is None:
            all_pairs = sent(self.cluster, ends) if self.rotated is None else self.rotated.transfers(ends)
            # The pair that stands for all is one that leaves its domain, where any does.
            some = ends if self.rotated is None else self.rotated.lowest(ends)
            first = int(np.argmax(self.cluster.domain_of(some[:, 0]) != self.cluster.domain_of(some[:, 1])))
            one_pair = sent(self.cluster, some[first : first + 1])
            candidate = replace(self._alone("direct", one_pair), pattern=all_pairs)
            self._transfers[name] = candidate
        leaves = candidate.pattern.phases[0][0].inter_steps > 0
        pcie = not leaves and any(self._has_pcie(each.route_set.link_ids) for phase in candidate.pattern.phases for each in phase)
        medium: Medium = "pcie" if pcie else "nvlink"
        calibration = self._calibration_of(ends)
        facts = Facts(
            op="send_recv",
            n_ranks=2,
            n_domains=2 if leaves else 1,
            limits=calibration.library,
            n_channels=LEAST_CHANNELS,
            medium=medium,
            protocols=calibration.protocols,
        )
        _, protocol = choose([candidate], facts, size_bytes)
        way = Way(algorithm="direct", protocol=protocol, family="exchange", medium=facts.medium)
        sending = timed(candidate, way, self.cluster, calibration, size_bytes=size_bytes)
        waited_s = waits_per_transfer * self.waited_send_s
        if not waited_s:
            return sending
        later = (tuple(replace(flow, latency_s=flow.latency_s + waited_s) for flow in phase) for phase in sending.phases)
        return replace(sending, phases=tuple(later))

    def _chosen(self, call: CollectiveCall, groups: Grouping, facts: Facts) -> tuple[AlgorithmCandidate, Protocol]:
        """Return the algorithm of a call, with the pattern of all groups, and its protocol.

        What the library chooses and how a call ramps up is the business of one group: it knows nothing of the others. All are laid for
        what it takes, or before where they lie differently, so that the choice depends on more than the first of them.
        """
        size_bytes = call.size_bytes / call.pieces
        if call.servers is not None or call.algorithm != "auto" or call.op not in OFFERED:
            candidate = self._candidate(call, groups, call.algorithm)
            return candidate, choose([candidate], facts, size_bytes)[1]
        names = [algorithm for algorithm in OFFERED[call.op] if enabled(algorithm, facts)]
        several = len(groups.members) > 1
        offered = self._runnable(call, groups, names, lone=several and groups.per_domain > 0)
        while True:
            name, protocol = choose(offered, facts, size_bytes)
            found = self._runnable(call, groups, [name])
            if found:
                return found[0], protocol
            # Others of the groups cannot run what the first can.
            offered = [candidate for candidate in offered if candidate.algorithm != name]

    def _runnable(self, call: CollectiveCall, groups: Grouping, names: Sequence[str], *, lone: bool = False) -> list[AlgorithmCandidate]:
        """Return the algorithms that can run here; one chosen by name that cannot run is an error."""
        found: list[AlgorithmCandidate] = []
        for name in names:
            try:
                found.append(self._candidate(call, groups, name, lone=lone))
            except DomainError:
                continue
        return found

    def _candidate(self, call: CollectiveCall, groups: Grouping, algorithm: str, *, lone: bool = False) -> AlgorithmCandidate:
        """Return an algorithm with the pattern of all groups, or of the first group alone."""
        key = replace(call, algorithm=algorithm, size_bytes=0.0, pieces=1), lone
        found = self._candidates.get(key)
        if found is None:
            if len(groups.members) == 1:
                found = self._weighed(call, groups, algorithm)
            elif lone:
                found = self._weighed(call, self._first_of(call.group, groups), algorithm)
            else:
                pattern = self._lay(call, groups, algorithm)
                found = replace(self._candidate(call, groups, algorithm, lone=True), pattern=pattern)
            self._candidates[key] = found
        return found

    def _weighed(self, call: CollectiveCall, groups: Grouping, algorithm: str) -> AlgorithmCandidate:
        pattern = self._lay(call, groups, algorithm)
        return self._alone("parameter_server" if call.servers else algorithm, pattern)

    def _alone(self, algorithm: str, pattern: Pattern) -> AlgorithmCandidate:
        return AlgorithmCandidate(
            algorithm=algorithm,
            pattern=pattern,
            lone=pattern,
            idle_rate_bytes_per_s=idle_rate_bytes_per_s(pattern, self.bandwidth_bytes_per_s),
            known_rate_bytes_per_s=idle_rate_bytes_per_s(pattern, self._known_bytes_per_s),
        )

    def _lay(self, call: CollectiveCall, groups: Grouping, algorithm: str) -> Pattern:
        if call.servers is None:
            return laid(algorithm_of(call.op, algorithm).lay, self.cluster, groups, spreads=call.op in SPREADING)
        if call.op not in SERVED:
            hint = f"they serve {', '.join(SERVED)}"
            raise DomainError(f"parameter servers do not serve {call.op}", hint=hint)
        return SERVED[call.op](self.cluster, groups, call.servers)

    def _first_of(self, name: str, groups: Grouping) -> Grouping:
        found = self._firsts.get(name)
        if found is None:
            found = self._firsts[name] = grouping(self.cluster, groups.members[:1])
        return found

    def _facts_of(self, call: CollectiveCall, groups: Grouping) -> Facts:
        found = self._facts.get(call.group)
        if found is None:
            calibration = self._calibration_of(groups.members)
            nodes = [self.cluster.kinds[kind][0] for kind in self._kinds_of(groups.members)]
            per_domain = min(groups.per_domain or groups.size, *(node.n_nics * node.scale_up.nodes_per_domain for node in nodes))
            found = self._facts[call.group] = Facts(
                op=call.op,
                n_ranks=groups.size,
                n_domains=groups.n_domains,
                limits=calibration.library,
                n_channels=max(LEAST_CHANNELS, per_domain),
                medium=self._medium(groups),
                protocols=calibration.protocols,
                relays=all(node.scale_up.kind == "nvswitch" for node in nodes) and self.cluster.fabric.topology == "rail_optimized",
            )
        return replace(found, op=call.op)

    def _kinds_of(self, ranks: IntArray) -> tuple[int, ...]:
        """Return the kinds of nodes that some ranks are on."""
        if len(self.cluster.kinds) == 1:
            return (0,)
        return tuple(np.unique(self.cluster.kind_of(self.cluster.node_of(ranks.reshape(-1)))).tolist())

    def _calibration_of(self, ranks: IntArray) -> NetworkCalibration:
        """Return the constants that some ranks go by: the slowest of the kinds of nodes that they are on."""
        if not self.calibration.of_kinds:
            return self.calibration
        kinds = self._kinds_of(ranks)
        if kinds not in self._calibrations:
            self._calibrations[kinds] = slowest([self.calibration.of_kinds[kind] for kind in kinds])
        return self._calibrations[kinds]

    def _medium(self, groups: Grouping) -> Medium:
        """Return whether neighbours inside a domain have anything but PCIe between them."""
        inside = groups.domains[:, 1:] == groups.domains[:, :-1]
        sources, destinations = groups.members[:, :-1][inside], groups.members[:, 1:][inside]
        for first in range(0, len(sources), BATCH):
            routes = self.cluster.routes(sources[first : first + BATCH], destinations[first : first + BATCH])
            if self._has_pcie(routes.link_ids):
                return "pcie"
        return "nvlink"

    def _has_pcie(self, link_ids: IntArray) -> bool:
        return bool((self.cluster.tier_index[link_ids] == TIERS.index("pcie")).any())


def _known(tiers: IntArray, as_built_bytes_per_s: FloatArray, shares: FloatArray) -> FloatArray:
    return np.where(np.isin(tiers, FABRIC), np.inf, as_built_bytes_per_s * shares)


def algorithm_of(op: CollectiveOp, name: str) -> Algorithm:
    """Return an algorithm by name.

    Raises
    ------
    DomainError
        The operation has none of that name.
    """
    rows = ALGORITHMS.get(op, {})
    if name not in rows:
        hint = f"use auto, {', '.join(rows)}" if rows else "name servers"
        raise DomainError(f"'{name}' is not an algorithm of {op}", hint=hint)
    return rows[name]
