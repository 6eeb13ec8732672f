"""Links, routes and symmetries of a cluster, as arrays, and a hash of pairs as an ECMP switch has it: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class LinkValues(Generic[Value]):
    """A property of every link, stored once for each kind of link, since a large cluster has millions of links of a few kinds.

    Links index it as they index an array, and ``np.asarray`` gives an array of all of them.
    """

    kinds: NDArray[np.int32]
    """Kind of each link, by id."""
    values: NDArray[Value]
    """Value of each kind."""

    def __getitem__(self, link_ids: IntArray | NDArray[np.bool_] | int) -> NDArray[Value]:
        if isinstance(link_ids, np.ndarray) and link_ids.dtype != np.bool_:
            # For scattered links this takes two thirds of the time of an index.
            return self.values[self.kinds.take(link_ids)]
        return self.values[self.kinds[link_ids]]

    def __len__(self) -> int:
        return len(self.kinds)

    def __array__(self, dtype: np.dtype[Any] | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values[self.kinds], dtype=dtype)


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """A number for each of some ranks, in a table from the lowest of their nodes to the highest; -1 for ranks without one."""

    first: int
    numbers: IntArray

    @classmethod
    def among(cls, ranks: IntArray, per_node: int = 1) -> RankTable:
        """Return a table without numbers for ranks of the nodes of some ranks, and of those between them."""
        first = int(ranks.min(initial=0 if not ranks.size else int(ranks.flat[0]))) // per_node * per_node
        end = (int(ranks.max(initial=first)) // per_node + 1) * per_node
        return cls(first, np.full(end - first, -1, dtype=np.int64))

    @classmethod
    def of(cls, ranks: IntArray, numbers: IntArray) -> RankTable:
        """Return a table of the number of each rank."""
        table = cls.among(ranks)
        table[ranks] = numbers
        return table

    def __getitem__(self, ranks: IntArray | int) -> IntArray:
        return self.numbers[ranks - self.first]

    def __setitem__(self, ranks: IntArray, numbers: IntArray) -> None:
        self.numbers[ranks - self.first] = numbers


def ascending(ranks: IntArray) -> IntArray:
    """Return each row in ascending order: the same array where it is in that order already, which takes a fifth of the time of sorting."""
    return ranks if bool((ranks[..., 1:] > ranks[..., :-1]).all()) else np.sort(ranks, axis=-1)


LinkFloats = LinkValues[np.float64]
LinkInts = LinkValues[np.int64]


def link_values(values: NDArray[Value]) -> LinkValues[Value]:
    """Return a property that is given for each link."""
    _, firsts, kinds = np.unique(values, return_index=True, return_inverse=True)
    return LinkValues(kinds.astype(np.int32), values[firsts])


def for_each_link(formula: Callable[..., NDArray[Value]], *values: LinkValues[Any]) -> LinkValues[Value]:
    """Return a formula of some properties of each link, evaluated once for each kind where they are stored by the same kinds."""
    kinds = values[0].kinds
    if all(each.kinds is kinds for each in values):
        return LinkValues(kinds, formula(*(each.values for each in values)))
    return link_values(formula(*map(np.asarray, values)))


TIERS: Final = ("nvlink", "pcie", "socket", "nic", "leaf", "spine", "memory", "storage")
"""Tiers of links: accelerator to accelerator; to the host; between sockets; adapter to leaf; leaf to spine; spine to core; host memory;
drives of a host."""

FABRIC: Final = tuple(TIERS.index(tier) for tier in ("leaf", "spine"))
"""Places in ``TIERS`` of links between switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable, a bundle of cables, or an on-board connection."""

    name: str
    tier: str
    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Routes of many pairs in compressed rows: pair i uses ``link_ids[starts[i]:starts[i + 1]]``.

    ``weights`` is the share of the pair's bytes that each link carries: 1, or less where routing spreads a flow.
    """

    starts: IntArray
    link_ids: IntArray
    weights: FloatArray
    latency_s: FloatArray
    """Direction, for each pair."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotation:
    """A node symmetry: a rotation of the accelerators of all nodes that leaves routes between ranks and link properties unchanged.

    The route between two rotated ranks is the route between them, with each of its links rotated. Ranks come back to
    where they were after ``n_rotations`` rotations and not before; a link either does so too or stays where it is.
    """

    n_rotations: int
    per_node: int
    """Accelerators of a node."""
    rotated_rank: IntArray
    """Whose place each rank takes."""
    lowest_rank: IntArray
    """The lowest rank that each rank can be rotated to."""
    lowest_link: NDArray[np.int32]
    """The same of each link."""
    n_alike: NDArray[np.int8]
    """Number of links that take the place of each link: ``n_rotations``, or 1."""


KeyArray = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]

# Constants of splitmix64: G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, as in
# https://prng.di.unimi.it/splitmix64.c.
_GAMMA: Final = 0x9E3779B97F4A7C15
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MASK: Final = (1 << 64) - 1


def pair_keys(seed: int, sources: IntArray, destinations: IntArray) -> KeyArray:
    """Return a 64-bit hash of each ordered pair and the seed."""
    start = _mixed(np.full(1, _offset(seed), dtype=np.uint64))
    return _mixed(_mixed(start ^ sources.astype(np.uint64)) ^ destinations.astype(np.uint64))


def picked(keys: KeyArray, stage: int, n_choices: int) -> IntArray:
    """Return one of the choices for each key; each stage of a route (leaf, spine, core, ...) has its own hash."""
    return (_mixed(keys + np.uint64(_offset(stage))) % np.uint64(n_choices)).astype(np.int64)


def picked_among(keys: KeyArray, stage: int, open_choices: BoolArray) -> IntArray:
    """Return one of the open choices for each key; 0 where none is open.

    Parameters
    ----------
    open_choices
        Shape (n_keys, n_choices).
    """
    counts = open_choices.sum(axis=1)
    turn = _mixed(keys + np.uint64(_offset(stage))) % np.maximum(counts, 1).astype(np.uint64)
    reached = open_choices.cumsum(axis=1) > turn.astype(np.int64)[:, None]
    return np.argmax(reached, axis=1).astype(np.int64)


def _offset(number: int) -> int:
    return (number + 1) * _GAMMA & _MASK


def _mixed(values: KeyArray) -> KeyArray:
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
