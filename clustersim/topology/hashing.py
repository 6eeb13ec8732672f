"""A hash of pairs that is the same on every machine: what an ECMP switch does with the addresses in a packet."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.topology.cluster import IntArray

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
