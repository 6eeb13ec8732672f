"""The most that a network of capacities can carry from one place to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

_ROUND_OFF = 1e-12
"""Share of the largest capacity below which nothing is left of one."""


def max_flow(capacity: Mapping[tuple[str, str], float], source: str, sink: str) -> float:
    """Return the greatest flow from one place to another.

    Parameters
    ----------
    capacity
        Of each directed connection, by the places that it leads from and to.

    References
    ----------
    .. [1] E. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.

    Examples
    --------
    >>> max_flow({("a", "b"): 2.0, ("a", "c"): 5.0, ("b", "d"): 4.0, ("c", "d"): 1.0, ("c", "b"): 1.0}, "a", "d")
    4.0
    """
    left: dict[str, dict[str, float]] = {source: {}, sink: {}}
    for (tail, head), width in capacity.items():
        left.setdefault(tail, {})[head] = left.get(tail, {}).get(head, 0.0) + width
        left.setdefault(head, {}).setdefault(tail, 0.0)
    nothing = _ROUND_OFF * max(capacity.values(), default=0.0)
    total = 0.0
    while True:
        levels = _levels(left, source, nothing)
        if sink not in levels:
            return total
        tried = {place: list(heads) for place, heads in left.items()}
        while (pushed := _pushed(left, levels, tried, (source, sink), nothing)) > 0.0:
            total += pushed


def _levels(left: Mapping[str, Mapping[str, float]], source: str, nothing: float) -> dict[str, int]:
    """Return how many steps each place is from the source, over what is left."""
    levels = {source: 0}
    queue = deque([source])
    while queue:
        place = queue.popleft()
        for head, width in left[place].items():
            if width > nothing and head not in levels:
                levels[head] = levels[place] + 1
                queue.append(head)
    return levels


def _pushed(
    left: Mapping[str, dict[str, float]], levels: Mapping[str, int], tried: Mapping[str, list[str]], ends: tuple[str, str], nothing: float
) -> float:
    """Push along one path that takes a level each step, and return how much; 0 when no such path is left."""
    path = [ends[0]]
    while path[-1] != ends[1]:
        place, heads = path[-1], tried[path[-1]]
        while heads and not (left[place][heads[-1]] > nothing and levels.get(heads[-1]) == levels[place] + 1):
            heads.pop()
        if heads:
            path.append(heads[-1])
        elif len(path) == 1:
            return 0.0
        else:
            path.pop()
            tried[path[-1]].pop()
    steps = list(pairwise(path))
    width = min(left[tail][head] for tail, head in steps)
    for tail, head in steps:
        left[tail][head] -= width
        left[head][tail] += width
    return width
