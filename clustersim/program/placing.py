"""Rewrite a Program with other collectives, such as for some of the ranks of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from clustersim.hardware.library_costs import Servers
from clustersim.program.program import Program
from clustersim.program.tasks import (
    Action,
    Block,
    Collective,
    Communicate,
    Compute,
    HostCopy,
    HostUpdate,
    Item,
    Overlapped,
    RankGroups,
    Transfer,
    Work,
)
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import RankClass

T = TypeVar("T")


def once(done: dict[int, T], of: T, make: Callable[[T], T]) -> T:
    """Return what has been made of an object, by its identity, and make it where nothing has."""
    found = done.get(id(of))
    if found is None:
        found = done[id(of)] = make(of)
    return found


@dataclass(slots=True)
class Rewriting:
    """Replaces collectives; each object is rewritten once, which keeps cached results valid.

    Objects are known by their identity; whoever holds them must do so as long as this is used.
    """

    replaced: Callable[[Collective], Collective]
    _blocks: dict[int, Block] = field(default_factory=dict[int, Block])
    _items: dict[int, Item] = field(default_factory=dict[int, Item])
    _collectives: dict[int, Collective] = field(default_factory=dict[int, Collective])

    def compute(self, action: Compute) -> Compute:
        """Return a pass with other collectives inside."""
        return replace(action, blocks=tuple(once(self._blocks, block, self._block) for block in action.blocks))

    def collective(self, collective: Collective) -> Collective:
        """Return what takes the place of a collective."""
        return once(self._collectives, collective, self.replaced)

    def _block(self, block: Block) -> Block:
        return replace(block, body=tuple(once(self._items, item, self._item) for item in block.body))

    def _item(self, item: Item) -> Item:
        match item:
            case Work():
                return item
            case Collective():
                return self.collective(item)
            case Overlapped():
                return replace(item, collectives=tuple(map(self.collective, item.collectives)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Places of the ranks and hosts of a program on a cluster."""

    ranks: IntArray
    """For each rank of the program, that of the cluster."""
    hosts: Mapping[int, int]
    """For each host of the program with parameters, the host of the cluster."""


def placed(program: Program, placement: Placement) -> Program:
    """Return the same program on other ranks.

    What was one object stays one, so that whatever is worked out once for an object still is.

    Examples
    --------
    >>> from clustersim.program.tasks import Lane, Task
    >>> send = Transfer(name="F 0->1", dimension="pp", pairs=np.array([[0, 1]]), bytes=8.0)
    >>> task = Task(action=send, lanes=(Lane(rank_class=0, stream="send"),), after=())
    >>> moved = placed(Program(rank_classes=(), tasks=(task,)), Placement(ranks=np.array([6, 4]), hosts={}))
    >>> moved.tasks[0].action.pairs
    array([[6, 4]])
    """
    placing = _Mover(placement=placement)
    return Program(
        rank_classes=tuple(_class_on(placement.ranks, rank_class) for rank_class in program.rank_classes),
        tasks=tuple([task._replace(action=placing.action(task.action)) for task in program.tasks]),
    )


def _class_on(ranks: IntArray, rank_class: RankClass) -> RankClass:
    return replace(rank_class, representative_rank=int(ranks[rank_class.representative_rank]), ranks=np.sort(ranks[rank_class.ranks]))


@dataclass(slots=True, kw_only=True)
class _Mover:
    """Each moved object, by its identity; the program keeps the objects alive."""

    placement: Placement
    _actions: dict[int, Action] = field(default_factory=dict[int, Action])
    _passes: Rewriting = field(init=False)
    _groups: dict[int, RankGroups] = field(default_factory=dict[int, RankGroups])
    _servers: dict[int, Servers] = field(default_factory=dict[int, Servers])

    def __post_init__(self) -> None:
        self._passes = Rewriting(self._moved)

    def action(self, action: Action) -> Action:
        return once(self._actions, action, self._action)

    def _action(self, action: Action) -> Action:
        match action:
            case Compute():
                return self._passes.compute(action)
            case Communicate():
                return replace(action, collective=self._passes.collective(action.collective))
            case Transfer():
                return replace(action, pairs=self.placement.ranks[action.pairs])
            case HostCopy() | HostUpdate():
                return replace(action, ranks=self.placement.ranks[action.ranks])

    def _moved(self, collective: Collective) -> Collective:
        servers = None if collective.servers is None else once(self._servers, collective.servers, self._served)
        return replace(collective, group=once(self._groups, collective.group, self._group), servers=servers)

    def _group(self, group: RankGroups) -> RankGroups:
        return replace(group, members=self.placement.ranks[group.members])

    def _served(self, servers: Servers) -> Servers:
        return replace(servers, hosts=tuple(self.placement.hosts[host] for host in servers.hosts))
