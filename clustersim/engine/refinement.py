"""Colour refinement: equivalence of ranks by their properties and by their communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import IntArray

Hashes = NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = 0xFFFFFFFFFFFFFFFF


def scrambled(values: IntArray | Hashes, salt: int = 0) -> Hashes:
    """Return numbers that look random and are the same for the same values and salt (the finaliser of SplitMix64 [1]_).

    Sums of them, modulo 2^64, stand for multisets: two different ones have the same sum with a probability of 2^-64.

    References
    ----------
    .. [1] G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure 16.
    """
    mixed = values.astype(np.uint64) + np.uint64((salt + 1) * _GOLDEN & _MASK)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def summed(hashes: Hashes, owners: IntArray, n_owners: int) -> Hashes:
    """Return the sum of the hashes of each owner, modulo 2^64."""
    sums = np.zeros(n_owners, dtype=np.uint64)
    np.add.at(sums, owners, hashes)
    return sums


def numbered(hashes: Hashes) -> IntArray:
    """Return small numbers, equal where hashes are, in the order in which they first occur.

    Examples
    --------
    >>> numbered(np.array([7, 3, 7, 9], dtype=np.uint64))
    array([0, 1, 0, 2])
    """
    if len(hashes) == 0 or bool((hashes == hashes[0]).all()):
        return np.zeros(len(hashes), dtype=np.int64)
    _, firsts, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.empty(len(firsts), dtype=np.int64)
    order[np.argsort(firsts, kind="stable")] = np.arange(len(firsts))
    return order[inverse.reshape(-1)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Incidence:
    """Which ranks take part in which instances of something that many ranks do at the same time, a few together each."""

    ranks: IntArray
    instances: IntArray
    """Instance of the rank at the same place."""
    n_instances: int
    parts: IntArray | None = None
    """Role of the rank at the same place, such as sending; all do the same when left out."""


@dataclass(slots=True)
class Partition:
    """Ranks and action instances by colours, refined until members of a class are equivalent."""

    ranks: IntArray
    """Colour of each rank of the cluster; -1 for those that take no part."""
    incidences: Sequence[Incidence]
    instances: list[IntArray]
    """Colour of each instance, for each incidence."""

    @property
    def n_cells(self) -> int:
        """Distinct colours of ranks, and of the instances of each incidence, together."""
        return sum(int(colours.max(initial=-1)) + 1 for colours in (self.ranks, *self.instances))

    def split(self, number: int, hashes: Hashes) -> bool:
        """Split the instances of an incidence by one more number each, and return whether any were split."""
        if bool((hashes == hashes[:1]).all()):
            return False
        before = self.instances[number]
        after = numbered(scrambled(before) + scrambled(hashes, 1))
        self.instances[number] = after
        return int(after.max(initial=-1)) > int(before.max(initial=-1))

    def refine(self) -> None:
        """Split instances by their ranks, and ranks by their instances, until no split remains."""
        n_before, taking_part = 0, np.flatnonzero(self.ranks >= 0)
        # Those that take no part have a colour of their own.
        colours, touched = (np.full(len(self.ranks), _GOLDEN, dtype=np.uint64) for _ in range(2))
        while n_before < (n_cells := self.n_cells):
            n_before = n_cells
            colours[taking_part] = scrambled(self.ranks[taking_part])
            for number, incidence in enumerate(self.incidences):
                of_ranks = colours[incidence.ranks]
                if incidence.parts is not None:
                    of_ranks = scrambled(of_ranks + scrambled(incidence.parts, 1))
                self.split(number, summed(of_ranks, incidence.instances, incidence.n_instances))
            touched[taking_part] = colours[taking_part]
            for number, incidence in enumerate(self.incidences):
                of_instances = scrambled(self.instances[number], 2 + number)[incidence.instances]
                if incidence.parts is not None:
                    of_instances = scrambled(of_instances + scrambled(incidence.parts, 1))
                np.add.at(touched, incidence.ranks, of_instances)
            self.ranks[taking_part] = numbered(touched[taking_part])
