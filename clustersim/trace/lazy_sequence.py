"""Sequences whose items are made when one of them is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """Items that are made all at once, when one of them is asked for."""

    _items: tuple[T, ...] | None = None

    @abstractmethod
    def make(self) -> tuple[T, ...]:
        """Return all items."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return one, or some."""
        return self.items[index]

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items in order."""
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        """Compare with other items, one by one."""
        return self.items == (other.items if isinstance(other, type(self)) else other)

    def __hash__(self) -> int:
        """Return the hash of all items."""
        return hash(self.items)

    @property
    def items(self) -> tuple[T, ...]:
        """All items."""
        if self._items is None:
            self._items = self.make()
        return self._items
