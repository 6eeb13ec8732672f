"""The quotient Program: equivalent ranks become one task, with all of their groups and pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from clustersim.engine.instance_sets import InstanceSets
from clustersim.program.placing import Rewriting
from clustersim.program.program import Program
from clustersim.program.tasks import Action, Collective, Communicate, Compute, HostCopy, HostUpdate, Lane, RankGroups, Task, Transfer
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import RankClass, ranks_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """Equivalent instances of concurrent actions, with all those that they represent."""

    number: int
    """Index among those of the same actions."""
    instances: IntArray
    classes: tuple[int, ...]
    """Cells of ranks that take part, as rank classes of the quotient; ascending."""


@dataclass(slots=True)
class Names:
    """Names of parts of groups and transfers: equal if and only if the parts are equal."""

    _of: dict[tuple[str, bytes], str] = field(default_factory=dict[tuple[str, bytes], str])
    _n_parts: dict[str, int] = field(default_factory=dict[str, int])

    def part(self, name: str, rows: IntArray) -> str:
        """Return the name of some of the groups or pairs that have a name together."""
        key = name, rows.tobytes()
        if key not in self._of:
            self._n_parts[name] = number = self._n_parts.get(name, 0) + 1
            self._of[key] = f"{name}, cell {number}"
        return self._of[key]


@dataclass(slots=True, kw_only=True)
class Quotient:
    """Builds the Program of the classes of a partition."""

    program: Program
    instance_sets: InstanceSets
    rank_colours: IntArray
    instance_colours: Sequence[IntArray]
    """Instance colours by instance set."""
    names: Names
    rank_classes: list[RankClass] = field(default_factory=list[RankClass])
    origins: list[int] = field(default_factory=list[int])
    """For each class of the quotient, that of the program which it is a part of."""
    _class_of: IntArray = field(init=False)
    _cells: dict[int, tuple[Cell, ...]] = field(default_factory=dict[int, tuple[Cell, ...]])
    _parts: dict[Action, tuple[Action, ...]] = field(default_factory=dict[Action, tuple[Action, ...]])
    """Part of each action in each cell."""
    _passes: dict[tuple[int, int], Rewriting] = field(default_factory=dict[tuple[int, int], Rewriting])
    """Rewriting of each class."""
    _groups: dict[tuple[RankGroups, int, int], RankGroups] = field(default_factory=dict[tuple[RankGroups, int, int], RankGroups])
    _pairs: dict[tuple[int, int], IntArray] = field(default_factory=dict[tuple[int, int], IntArray])
    _links: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = field(default_factory=dict[tuple[int, int], tuple[tuple[int, ...], ...]])
    _lanes: dict[tuple[tuple[Lane, ...], int], list[tuple[Lane, ...]]] = field(
        default_factory=dict[tuple[tuple[Lane, ...], int], list[tuple[Lane, ...]]]
    )

    def __post_init__(self) -> None:
        """Name the classes."""
        self._class_of = np.full(len(self.rank_colours), -1, dtype=np.int64)
        for number, rank_class in enumerate(self.program.rank_classes):
            colours = self.rank_colours[rank_class.ranks]
            _, firsts, inverse, counts = np.unique(colours, return_index=True, return_inverse=True, return_counts=True)
            by_colour = rank_class.ranks[np.argsort(inverse.reshape(-1), kind="stable")]
            ends: list[int] = np.cumsum(counts).tolist()
            order: list[int] = np.argsort(firsts).tolist()
            for colour in order:
                ranks = by_colour[ends[colour] - int(counts[colour]) : ends[colour]]
                self._class_of[ranks] = len(self.rank_classes)
                self.origins.append(number)
                self.rank_classes.append(rank_class if len(firsts) == 1 else _part(rank_class, ranks))

    def build(self) -> Program:
        """Return the quotient: each task becomes one task per class, which waits for those with common ranks."""
        if len(self.rank_classes) == len(self.program.rank_classes) and all(not colours.any() for colours in self.instance_colours):
            return self.program
        tasks = self.program.tasks
        numbers = [self.instance_sets.of_action[task.action] for task in tasks]
        firsts: list[int] = []
        n_tasks = 0
        for number in numbers:
            firsts.append(n_tasks)
            n_tasks += len(self.cells(number))
        built: list[Task] = []
        for task, number in zip(tasks, numbers, strict=True):
            waits = [(firsts[earlier], self._shared(number, numbers[earlier])) for earlier in task.after]
            for place, (action, lanes) in enumerate(zip(self.parts(task.action), self._lanes_of(task.lanes, number), strict=True)):
                after = tuple([first + other for first, shared in waits for other in shared[place]])
                built.append(Task(action, lanes, after, task.micro_batch, task.chunk))
        return Program(rank_classes=tuple(self.rank_classes), tasks=tuple(built))

    def cells(self, number: int) -> tuple[Cell, ...]:
        """Return the cells of an instance set."""
        found = self._cells.get(number)
        if found is None:
            incidence, colours = self.instance_sets.found[number].incidence, self.instance_colours[number]
            n_classes = len(self.rank_classes)
            met = np.unique(colours[incidence.instances] * n_classes + self._class_of[incidence.ranks])
            classes: list[list[int]] = [[] for _ in range(int(colours.max(initial=-1)) + 1)]
            keys: list[int] = met.tolist()
            for key in keys:
                classes[key // n_classes].append(key % n_classes)
            by_colour = np.argsort(colours, kind="stable")
            bounds = np.searchsorted(colours[by_colour], np.arange(len(classes) + 1))
            found = self._cells[number] = tuple(
                Cell(number=colour, instances=by_colour[bounds[colour] : bounds[colour + 1]], classes=tuple(of_colour))
                for colour, of_colour in enumerate(classes)
            )
        return found

    def parts(self, action: Action) -> tuple[Action, ...]:
        """Return the part of an action in each cell."""
        found = self._parts.get(action)
        if found is None:
            number = self.instance_sets.of_action[action]
            cells = self.cells(number)
            found = (action,) if len(cells) == 1 else tuple([self._restricted(action, number, cell) for cell in cells])
            self._parts[action] = found
        return found

    def _restricted(self, action: Action, number: int, cell: Cell) -> Action:
        match action:
            case Communicate():
                return replace(action, collective=self._narrowed(action.collective, number, cell))
            case Transfer():
                chosen = self._members(number, cell)
                pairs = _once(self._pairs, (id(action.pairs), cell.number), lambda: action.pairs[chosen])
                self.instance_sets.know_part(pairs, action.pairs, cell.instances)
                return replace(action, name=self.names.part(action.name, chosen), pairs=pairs)
            case HostCopy() | HostUpdate():
                ranks = _once(self._pairs, (id(action.ranks), cell.number), lambda: action.ranks[cell.instances])
                return replace(action, ranks=ranks)
            case Compute():
                passes = _once(self._passes, (number, cell.number), lambda: Rewriting(lambda each: self._narrowed(each, number, cell)))
                return passes.compute(action)

    def _members(self, number: int, cell: Cell) -> IntArray:
        """Return the groups or pairs in a class."""
        standing = self.instance_sets.found[number].standing
        return cell.instances if standing is None else np.flatnonzero(self.instance_colours[number][standing.row_of] == cell.number)

    def _narrowed(self, collective: Collective, number: int, cell: Cell) -> Collective:
        """Return a collective of the groups in the instances of a class."""

        def narrow() -> RankGroups:
            group = collective.group
            chosen = np.flatnonzero(self.instance_colours[number][self.instance_sets.instances_of(number, group)] == cell.number)
            part = replace(group, name=self.names.part(group.name, chosen), members=group.members[chosen])
            self.instance_sets.know_part(part.members, group.members, cell.instances)
            return part

        return replace(collective, group=_once(self._groups, (collective.group, number, cell.number), narrow))

    def _lanes_of(self, whole: tuple[Lane, ...], number: int) -> list[tuple[Lane, ...]]:
        """Return the part of some lanes in each cell."""

        def lanes(cell: Cell) -> tuple[Lane, ...]:
            return tuple([Lane(each, lane.stream) for lane in whole for each in cell.classes if self.origins[each] == lane.rank_class])

        return _once(self._lanes, (whole, number), lambda: [lanes(cell) for cell in self.cells(number)])

    def _shared(self, later: int, earlier: int) -> tuple[tuple[int, ...], ...]:
        """Return for each cell of an instance set those of another that it shares ranks with; where they share none at all, all of them."""

        def share() -> tuple[tuple[int, ...], ...]:
            others = [frozenset(cell.classes) for cell in self.cells(earlier)]
            found = tuple(
                tuple(place for place, other in enumerate(others) if not other.isdisjoint(cell.classes)) for cell in self.cells(later)
            )
            return found if any(found) else (tuple(range(len(others))),) * len(found)

        return _once(self._links, (later, earlier), share)


def _part(rank_class: RankClass, ranks: IntArray) -> RankClass:
    where = "" if rank_class.name == "all ranks" else f"{rank_class.name}, "
    return replace(rank_class, name=where + ranks_text(ranks), representative_rank=int(ranks[0]), ranks=ranks)


K = TypeVar("K")


def _once(done: dict[K, T], key: K, make: Callable[[], T]) -> T:
    found = done.get(key)
    if found is None:
        found = done[key] = make()
    return found
