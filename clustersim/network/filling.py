"""Progressive filling: the max-min fair rates of all flows in flight, solved from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf
from typing import Final

import numpy as np

from clustersim.topology.cluster import IntArray

TIE: Final = 1e-12
"""Link classes whose levels differ by less than this share are full at the same moment; to the last bit they are so only by luck."""

STALE: Final = 1e-3
"""Share of the demand of all flow classes below which the demand of the growing ones is summed again."""


Row = tuple[Sequence[tuple[int, float]], float]
"""Link classes that a flow class crosses, each of them once with the demand of all its flows there at level 1, and the highest level: cap
divided by weight, infinite without a cap. The level of a flow class is its rate divided by its weight."""


def progressive_filling(rows: Sequence[Row], capacity_bytes_per_s: Sequence[float]) -> tuple[list[float], dict[int, float]]:
    """Return the max-min fair levels under capacities, weights and caps.

    All levels grow together from zero. A flow class that reaches its limit stays there; a link class is full when ``sum over v of
    load[l, v] * level[v]`` reaches its capacity, and then everything that crosses it stays where it is. The rest grow on.

    Parameters
    ----------
    capacity_bytes_per_s
        Of every link class.

    Returns
    -------
    tuple
        Level of each flow class, infinite where nothing limits it; and the level at which each full link class filled.

    References
    ----------
    .. [1] D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2.

    Examples
    --------
    The first flow class crosses both link classes, the others one each; the second link class holds the first and the third back.

    >>> progressive_filling([([(0, 1.0), (1, 1.0)], inf), ([(0, 1.0)], inf), ([(1, 1.0)], inf)], [10.0, 4.0])
    ([2.0, 8.0, 2.0], {1: 2.0, 0: 8.0})
    """
    levels, full = [limit for _, limit in rows], dict[int, float]()
    growing = {place for place, (entries, _) in enumerate(rows) if entries}
    # Those that stop first stand last.
    limited = sorted(((levels[place], place) for place in growing if levels[place] < inf), reverse=True)
    crossing: dict[int, list[tuple[int, float]]] = {}
    for place, (entries, _) in enumerate(rows):
        for link_class, load in entries:
            crossing.setdefault(link_class, []).append((place, load))
    demand = {link_class: _added_up(users, growing) for link_class, users in crossing.items()}
    whole, left = dict(demand), {link_class: capacity_bytes_per_s[link_class] for link_class in crossing}
    fill = {link_class: left[link_class] / demand[link_class] for link_class in crossing}
    while growing:
        level, stopped = min(fill.values()), list[int]()
        # To stop somewhere below the level at which a link class fills only makes link classes fill later, so all of these get there.
        while limited and limited[-1][0] <= level:
            stopped.append(limited.pop()[1])
        stopped = [place for place in stopped if place in growing]
        if not stopped:
            filled = [link_class for link_class, reached in fill.items() if reached <= level * (1.0 + TIE)]
            full |= dict.fromkeys(filled, level)
            stopped = sorted({place for link_class in filled for place, _ in crossing[link_class] if place in growing})
            for place in stopped:
                levels[place] = level
        growing.difference_update(stopped)
        # Loads are added before they are multiplied. Whole numbers of flows then have the same sums in whatever order classes come, and
        # as however many: what is folded is filled to the same bit as what is not.
        for each, at_it in groupby(stopped, levels.__getitem__):
            for link_class, load in _taken([rows[place] for place in at_it], demand).items():
                left[link_class] -= each * load
        for link_class in {link_class for place in stopped for link_class, _ in rows[place][0]}:
            if growing.isdisjoint(place for place, _ in crossing[link_class]):
                del fill[link_class]
                continue
            if demand[link_class] < STALE * whole[link_class]:
                # What is left of such a sum is mostly round-off.
                demand[link_class] = _added_up(crossing[link_class], growing)
            fill[link_class] = max(left[link_class], 0.0) / demand[link_class]
    return levels, full


def _taken(stopped: Sequence[Row], demand: dict[int, float]) -> dict[int, float]:
    """Take flow classes out of the demand on link classes, and return what they demand together."""
    taken: dict[int, float] = {}
    for entries, _ in stopped:
        for link_class, load in entries:
            taken[link_class] = taken.get(link_class, 0.0) + load
            demand[link_class] -= load
    return taken


def _added_up(users: Sequence[tuple[int, float]], growing: set[int]) -> float:
    # Not with ``sum``, which compensates for round-off from Python 3.12 on.
    demand = 0.0
    for place, load in users:
        if place in growing:
            demand += load
    return demand


def spans(starts: IntArray, rows: IntArray) -> IntArray:
    """Return the entries of some rows of a compressed table, row by row.

    Examples
    --------
    >>> spans(np.array([0, 2, 2, 5]), np.array([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    lengths = starts[rows + 1] - starts[rows]
    before: IntArray = np.repeat(starts[rows] - np.cumsum(lengths) + lengths, lengths)
    return before + np.arange(len(before))
