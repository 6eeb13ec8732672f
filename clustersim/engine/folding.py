"""The `fold` pass: ranks, groups, pairs and links that must behave alike form one class each, with one representative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

import numpy as np

from clustersim.collectives.library import Library
from clustersim.collectives.rotated import NotAlikeError, Rotated
from clustersim.collectives.timing import SizedFlow
from clustersim.engine.bottlenecks import BoolArray, fabric_links, implied_links
from clustersim.engine.instance_sets import NOBODY, InstanceSets
from clustersim.engine.quotient import Names, Quotient
from clustersim.engine.refinement import Hashes, Partition, numbered, scrambled, summed
from clustersim.engine.traffic import Traffic, moved_by
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Program
from clustersim.topology.cluster import IntArray, LinkInts, LinkValues, RankTable, Rotation
from clustersim.topology.link_demand import Crossings, are_ones

Folding = Literal["cells", "ranks", "classes"]
"""Scope of one task of a replayed program: all that cannot be told apart, each rank or group by itself, or the rank classes
that the program came with."""

Regard = Literal["all", "nodes", "none"]
"""Which links tell groups apart: all, those inside nodes and adapters only, or none."""

LinkHashes = LinkValues[np.uint64]

Ways = dict[int, set[str]]
"""Algorithms of each action, by its place in the program."""

MOST_WORK: Final = 60_000_000
"""Tasks times cells of what they do, up to which everything is told apart: with paths chosen at random nothing may be like anything else,
every flow may meet every other, and each task is then a change for all of them."""
LEAST_ROTATED: Final = 2048
"""Ranks of a cluster from which on a node symmetry is searched first."""
TO_THE_BIT: Final = 512
"""Up to so many flow classes in flight their rates depend on nothing but what is in flight, so that a folded replay and one of every rank
agree to the last bit. They must: where collectives of many layers meet, a difference in the last bit can grow to a percent of a step."""
_ALONE: Final = 1
"""Equivalent instances of concurrent actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """Programs on the links that they share."""

    programs: tuple[Program, ...]
    traffics: tuple[Traffic, ...]
    network: SharedNetwork
    regard: Regard
    """Groups that differ on links of no regard go at the pace of the slowest."""
    rotation: Rotation | None = None
    """Node symmetry, or None. With it, only the lowest of equivalent links are crossed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wires:
    """The links of a cluster before anything is on them."""

    libraries: tuple[Library, ...]
    """Library of each program."""
    names: tuple[str, ...]
    labels: LinkInts
    """One number per link; links with different numbers are never in one class."""
    loaded: IntArray
    """Links with traffic of others."""
    regard: str = "all"
    """Links that may tell ranks apart, tried first; see ``EngineStats.told_apart``."""

    @property
    def rotation(self) -> Rotation | None:
        """The node symmetry whose lowest links represent the others; None where each link represents itself."""
        rotated = self.libraries[0].rotated
        return None if rotated is None else rotated.rotation

    def carry(self, programs: Sequence[Program], *, regard: Regard = "all") -> Wired:
        """Return the programs with all that they put on the links."""
        network = SharedNetwork(self.libraries[0].bandwidth_bytes_per_s, labels=self.labels, few=TO_THE_BIT)
        traffics = tuple(
            Traffic(library=library, network=network, job=name) for library, name in zip(self.libraries, self.names, strict=True)
        )
        for traffic, program in zip(traffics, programs, strict=True):
            traffic.register(program)
        return Wired(programs=tuple(programs), traffics=traffics, network=network, regard=regard, rotation=self.rotation)


def fold(programs: Sequence[Program], wires: Wires, colours: Sequence[IntArray | None], folding: Folding, *, closed: bool = True) -> Wired:
    """Return the quotients of programs that share links, by the coarsest equitable partition of all that is in them.

    Ranks begin with their class and what else tells them apart; instances of what they do with how their members lie. Both are
    refined by each other; then instances by the links that they cross, and these by the instances that cross them, until
    nothing is split any more. Each round lays the quotient so far on the network, so that the last round has proved the
    partition that is replayed.

    Parameters
    ----------
    colours
        For each program one number for each rank of the cluster, which tells apart ranks that do not compute alike; None where all do.
    closed
        False where other collectives than those of the programs will be laid on the same links.

    References
    ----------
    .. [1] B. Weisfeiler and A. Leman, "The reduction of a graph to canonical form and the algebra which appears therein", 1968.
    .. [2] D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2: progressive filling.
    """
    if folding == "classes":
        return wires.carry(programs)
    if folding == "cells" and len(programs) == 1 and closed and not len(wires.loaded):
        wired = fold_by_rotation(programs[0], wires, colours[0])
        if wired is not None:
            return wired
    sides = [
        _Side(program=program, library=library, colours=own, apart=folding == "ranks")
        for program, library, own in zip(programs, wires.libraries, colours, strict=True)
    ]
    return _folded(sides, wires, most=MOST_WORK if folding == "cells" else None)


def fold_by_rotation(program: Program, wires: Wires, colours: IntArray | None) -> Wired | None:
    """Return the result of ``fold``, from the lowest ranks and links under a node symmetry.

    None where the cluster, or anything that the program does, is not the same after a rotation, or not known to be. The coarsest
    equitable partition is the same after it too, so that all whose places a rank, group, pair or link takes are in its cell.
    """
    (library,) = wires.libraries
    cluster = library.cluster
    if cluster.n_ranks < LEAST_ROTATED:
        return None
    for step in range(1, cluster.node.n_accelerators):
        rotation = cluster.rotation(step)
        if rotation is None:
            continue
        turned = Rotated(cluster=cluster, rotation=rotation)
        rotated = Library(cluster=cluster, calibration=library.calibration, rotated=turned, waited_send_s=library.waited_send_s)
        try:
            side = _Side(program=program, library=rotated, colours=colours, apart=False)
        except NotAlikeError:
            continue
        try:
            return _folded([side], replace(wires, libraries=(rotated,)), most=MOST_WORK)
        except NotAlikeError:
            return None
    return None


def _folded(sides: Sequence[_Side], wires: Wires, most: int | None) -> Wired:
    """Return programs refined by as many of the links as there may be tasks for."""
    regards: tuple[Regard, ...] = get_args(Regard)
    for regard in regards[:1] if most is None else regards[regards.index(wires.regard) :]:
        for side in sides:
            side.begin()
        wired = _refined(sides, wires, regard, most)
        if wired is not None:
            return wired
    raise AssertionError("without regard to links nothing is split by them")


def _refined(sides: Sequence[_Side], wires: Wires, regard: Regard, most: int | None) -> Wired | None:
    """Return programs refined by the links that count; None where that takes more tasks than there may be."""
    links = _LinksThatCount()
    while True:
        if regard != "none" and most is not None and any(side.n_tasks * side.partition.n_cells > most for side in sides):
            return None
        wired = wires.carry([side.build() for side in sides], regard=regard)
        if regard == "none" or all(side.is_discrete for side in sides) or not links.splits(sides, wired, wires):
            return wired
        # The next round has links of its own, and both need not be in memory.
        del wired


@dataclass(slots=True)
class _LinksThatCount:
    """Links that tell groups apart, and those that never do because the capacity of others implies theirs."""

    ways: list[Ways] = field(default_factory=list[Ways])
    of_no_account: BoolArray | None = None

    def splits(self, sides: Sequence[_Side], wired: Wired, wires: Wires) -> bool:
        """Split what groups with different links are part of, and return whether anything was."""
        cluster, usable_bytes_per_s = wires.libraries[0].cluster, wires.libraries[0].bandwidth_bytes_per_s
        wiring = wired.network.wiring
        kinds = wiring.class_of_link.copy()
        # The last two are those of links of no account, and of links without a class.
        hashes = scrambled(np.arange(len(wiring.first_link) + 2, dtype=np.int64))
        hashes[-2] = 0
        links = LinkValues(kinds, hashes)
        if wired.regard == "nodes":
            kinds[fabric_links(cluster)] = len(hashes) - 2
        looks = list(zip(sides, wired.traffics, strict=True))
        before, self.ways = self.ways, [side.ways(traffic) for side, traffic in looks]
        if self.of_no_account is None or self.ways != before:
            if not any(side.tells_apart(traffic, links) for side, traffic in looks):
                return False
            # Looked at more closely, much of it may not matter. Parts that go the way of the whole put the same on the links.
            crossings = [each for side, traffic in looks for each in side.crossings(traffic)]
            opaque = [wires.loaded, *(side.opaque(traffic) for side, traffic in looks)]
            self.of_no_account = implied_links(crossings, np.concatenate(opaque), cluster, usable_bytes_per_s, wires.rotation)
        kinds[self.of_no_account] = len(hashes) - 2
        # The sum: all are to be split, however many have been.
        return bool(sum(side.split(side.seen(traffic, links)) for side, traffic in looks))


@dataclass(slots=True, kw_only=True)
class _Side:
    """One program, and its partition so far."""

    program: Program
    library: Library
    colours: IntArray | None
    apart: bool
    instance_sets: InstanceSets = field(init=False)
    ranks: IntArray = field(init=False)
    """Initial colour of each rank of the cluster; ``NOBODY`` for ranks without tasks, and for those with a representative."""
    partition: Partition = field(init=False)
    quotient: Quotient = field(init=False)
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        """Look at who takes part in what.

        Raises
        ------
        NotAlikeError
            Under a rotation, where classes, what tells ranks apart, or what they do change with it.
        """
        cluster = self.library.cluster
        self.instance_sets = InstanceSets.of(self.program, cluster, self.library.rotated)
        ranks = np.full(cluster.n_ranks, NOBODY, dtype=np.int64)
        for number, rank_class in enumerate(self.program.rank_classes):
            ranks[rank_class.ranks] = number
        taking_part = ranks != NOBODY
        if self.apart:
            ranks[taking_part] = np.arange(int(taking_part.sum()))
        elif self.colours is not None:
            ranks[taking_part] = numbered(scrambled(ranks[taking_part]) + scrambled(self.colours[taking_part], 1))
        if self.library.rotated is not None:
            rotation = self.library.rotated.rotation
            if (ranks[rotation.rotated_rank] != ranks).any():
                raise NotAlikeError
            ranks[rotation.lowest_rank != np.arange(cluster.n_ranks)] = NOBODY
        self.ranks = ranks

    def begin(self) -> None:
        """Begin with what ranks and instances are by themselves."""
        found = self.instance_sets.found
        instances = [numbered(instance_set.structure) for instance_set in found]
        self.partition = Partition(self.ranks.copy(), [instance_set.incidence for instance_set in found], instances)
        self.names = Names()
        self.partition.refine()

    @property
    def n_tasks(self) -> int:
        """Tasks of the quotient."""
        pairs = zip(self.instance_sets.n_tasks, self.partition.instances, strict=True)
        return sum(n_tasks * (int(colours.max(initial=0)) + 1) for n_tasks, colours in pairs)

    def build(self) -> Program:
        """Return the quotient by the partition so far."""
        rotated, colours = self.library.rotated, self.partition.ranks
        self.quotient = Quotient(
            program=self.program,
            instance_sets=self.instance_sets,
            rank_colours=colours if rotated is None else colours[rotated.rotation.lowest_rank],
            instance_colours=self.partition.instances,
            names=self.names,
        )
        return self.quotient.build()

    @property
    def is_discrete(self) -> bool:
        """True where each instance is its own class, so that no split remains."""
        sizes = (int(colours.max(initial=-1)) + 1 - len(colours) for colours in self.partition.instances)
        return not any(sizes)

    def seen(self, traffic: Traffic, links: LinkHashes) -> list[Hashes]:
        """Return for each instance of each set of concurrent actions the hash of its links.

        Parameters
        ----------
        links
            Of each link of the cluster a number that stands for its cell; 0 where it is of no account.
        """
        seen = [np.zeros(instance_set.incidence.n_instances, dtype=np.uint64) for instance_set in self.instance_sets.found]
        for number, _, salt, crossed in self._hashed(traffic, links):
            seen[number] += scrambled(crossed, salt)
        return seen

    def _hashed(self, traffic: Traffic, links: LinkHashes) -> Iterator[tuple[int, int, int, Hashes]]:
        """Yield the links that instances of a cell cross: instance set, cell, a salt, and a hash for each instance."""
        found, looked = self.instance_sets.found, set[tuple[int, int, int]]()
        for place, flow_number, number, cell, flow in self._looks(traffic):
            for part, crossings in enumerate(flow.crossings):
                # What goes the same way has been looked at already.
                if (number, cell, id(crossings)) not in looked:
                    looked.add((number, cell, id(crossings)))
                    crossed = _crossed(crossings, found[number].instance_of, links, found[number].incidence.n_instances)
                    yield number, cell, (place << 24) + (flow_number << 8) + part, crossed

    def crossings(self, traffic: Traffic) -> tuple[Crossings, ...]:
        """Return all that the program puts on the links, flow by flow."""
        flows = (flow for *_, flow in self._looks(traffic, least=1))
        return tuple({id(crossings): crossings for flow in flows for crossings in flow.crossings}.values())

    def ways(self, traffic: Traffic) -> Ways:
        """Return by which algorithms each action is performed."""
        found: Ways = {}
        for place, action in enumerate(self.program.actions):
            for part in self.quotient.parts(action):
                for moved in moved_by(part):
                    found.setdefault(place, set()).add(traffic.operation(moved).algorithm)
        return found

    def opaque(self, traffic: Traffic) -> IntArray:
        """Return the links of actions without single flows."""
        flows = (flow for *_, flow in self._looks(traffic, least=1))
        return np.concatenate([np.zeros(0, dtype=np.int64), *(flow.route_set.link_ids for flow in flows if not flow.crossings)])

    def tells_apart(self, traffic: Traffic, links: LinkHashes) -> bool:
        """Return whether instances of one class use different links."""
        for number, cell, _, crossed in self._hashed(traffic, links):
            of_cell = crossed[self.quotient.cells(number)[cell].instances]
            if bool((of_cell != of_cell[0]).any()):
                return True
        return False

    def split(self, seen: Sequence[Hashes]) -> bool:
        """Split instances by the links that they cross, and return whether any was."""
        was_split = [self.partition.split(number, hashes) for number, hashes in enumerate(seen) if len(hashes) > _ALONE]
        if any(was_split):
            self.partition.refine()
        return any(was_split)

    def _looks(self, traffic: Traffic, least: int = 2) -> Iterator[tuple[int, int, int, int, SizedFlow]]:
        """Yield the flows of cells of at least so many instances: place of the action, that of the flow, instance set, cell, flow."""
        for place, action in enumerate(self.program.actions):
            number = self.instance_sets.of_action[action]
            for cell, part in zip(self.quotient.cells(number), self.quotient.parts(action), strict=True):
                if len(cell.instances) >= least:
                    operations = [traffic.operation(moved) for moved in moved_by(part)]
                    flows = [flow for operation in operations for phase in operation.phases for flow in phase]
                    for flow_number, flow in enumerate(flows):
                        yield place, flow_number, number, cell.number, flow


def _crossed(crossings: Crossings, instance_of: RankTable, links: LinkHashes, n_instances: int) -> Hashes:
    """Return for each instance the hash of its links, its load, and the greatest latency of its flows."""
    entries = links[crossings.link_ids]
    if not are_ones(crossings.amounts):
        entries = scrambled(entries + scrambled(crossings.amounts.view(np.uint64), 1))
    sums = np.zeros(len(entries) + 1, dtype=np.uint64)
    np.cumsum(entries, out=sums[1:])
    owners = instance_of[crossings.ranks]
    longest_s = np.zeros(n_instances)
    np.maximum.at(longest_s, owners, crossings.latency_s)
    crossed = summed(sums[crossings.starts[1:]] - sums[crossings.starts[:-1]], owners, n_instances)
    return crossed + scrambled(longest_s.view(np.uint64), 2)
