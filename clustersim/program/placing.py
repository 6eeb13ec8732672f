"""Put a Program that counts its ranks from 0 on some of the ranks of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from clustersim.hardware.communication import Servers
from clustersim.program.program import Program
from clustersim.program.tasks import (
    Action,
    Block,
    Collective,
    Communicate,
    Compute,
    Group,
    HostCopy,
    HostUpdate,
    Item,
    Overlapped,
    Transfer,
    Uneven,
    Work,
    Woven,
)
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import RankClass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Where the ranks and the hosts of a program are."""

    ranks: IntArray
    """For each rank of the program, that of the cluster."""
    hosts: Mapping[int, int]
    """For each host of the program that keeps parameters, that of the cluster."""


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
    placing = _Placing(placement=placement)
    return Program(
        rank_classes=tuple(_class_on(placement.ranks, rank_class) for rank_class in program.rank_classes),
        tasks=tuple(replace(task, action=placing.action(task.action)) for task in program.tasks),
    )


def _class_on(ranks: IntArray, rank_class: RankClass) -> RankClass:
    return replace(rank_class, representative_rank=int(ranks[rank_class.representative_rank]), ranks=np.sort(ranks[rank_class.ranks]))


@dataclass(slots=True, kw_only=True)
class _Placing:
    """Each object moved once, by its identity; the program keeps the objects alive meanwhile."""

    placement: Placement
    _actions: dict[int, Action] = field(default_factory=dict[int, Action])
    _blocks: dict[int, Block] = field(default_factory=dict[int, Block])
    _items: dict[int, Item] = field(default_factory=dict[int, Item])
    _collectives: dict[int, Collective] = field(default_factory=dict[int, Collective])
    _groups: dict[int, Group] = field(default_factory=dict[int, Group])
    _servers: dict[int, Servers] = field(default_factory=dict[int, Servers])

    def action(self, action: Action) -> Action:
        return _once(self._actions, action, self._action)

    def _action(self, action: Action) -> Action:
        match action:
            case Compute():
                return replace(action, blocks=tuple(_once(self._blocks, block, self._block) for block in action.blocks))
            case Communicate():
                return replace(action, collective=self._collective(action.collective))
            case Transfer():
                return replace(action, pairs=self.placement.ranks[action.pairs])
            case HostCopy() | HostUpdate():
                return replace(action, ranks=self.placement.ranks[action.ranks])

    def _block(self, block: Block) -> Block:
        return replace(block, body=tuple(_once(self._items, item, self._item) for item in block.body))

    def _item(self, item: Item) -> Item:
        match item:
            case Work() | Uneven():
                return item
            case Collective():
                return self._collective(item)
            case Overlapped():
                return replace(item, collective=self._collective(item.collective))
            case Woven():
                return replace(item, collectives=tuple(self._collective(each) for each in item.collectives))

    def _collective(self, collective: Collective) -> Collective:
        return _once(self._collectives, collective, self._moved)

    def _moved(self, collective: Collective) -> Collective:
        servers = None if collective.servers is None else _once(self._servers, collective.servers, self._served)
        return replace(collective, group=_once(self._groups, collective.group, self._group), servers=servers)

    def _group(self, group: Group) -> Group:
        return replace(group, members=self.placement.ranks[group.members])

    def _served(self, servers: Servers) -> Servers:
        return replace(servers, hosts=tuple(self.placement.hosts[host] for host in servers.hosts))


def _once(done: dict[int, T], of: T, make: Callable[[T], T]) -> T:
    found = done.get(id(of))
    if found is None:
        found = done[id(of)] = make(of)
    return found
