"""Rewrite passes with other collectives; shared objects stay shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from clustersim.program.tasks import Block, Collective, Compute, Item, Overlapped, OverlappedPasses, UnevenWork, Work

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
            case Work() | UnevenWork():
                return item
            case Collective():
                return self.collective(item)
            case Overlapped():
                return replace(item, collective=self.collective(item.collective))
            case OverlappedPasses():
                return replace(item, collectives=tuple(map(self.collective, item.collectives)))
