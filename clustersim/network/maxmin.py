"""Max-min fair rates, followed from change to change: one source for the interpreter and, where it is installed, for numba.

The *fair rate* of a link is the rate per weight at which it is full, infinite if it is not. The *bottleneck* of a flow class is a full
link on its route on which no other class is faster. The classes with one bottleneck are its *group*, and go at its fair rate; a cap is a
link that only its class crosses. A link is *in balance* if its flows fill it, none of them is faster than its fair rate, and none of its
group crosses a link with a lower one. When all links are in balance the rates are max-min fair.

After a change only links out of balance are looked at, and each one that moves puts those out of balance that its group crosses. A link
changes nothing below the lower of its fair rates before and after, so that links are taken in the order of that rate, and most are
looked at once.
"""

# pyright: reportArgumentType=false
# An element of an array has, for the type checker, the type of a part of it as well.

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from clustersim.topology.cluster import FloatArray, IntArray

INF: Final = float("inf")
SAME: Final = 1e-13
"""Two rates are one if they differ by less than this share: sums of a hundred rates agree no better."""
WEIGH_EVERY: Final = 16
"""Visits of a link between two exact summations of its loads; between them the sum is updated change by change."""
SMALL_SHARE: Final = 0.05
"""They are added up anew as well if the link's group has less than this of its capacity, because of what cancels."""
BIG_LOSS: Final = 1e-3
"""A sum of loads that has lost all but this share of what it lost last is added up anew: the rest of it is round-off."""
FURTHER: Final = 1.05
"""A link on its way up looks so much beyond the new rate for flows that are held back elsewhere."""

Ints = Sequence[int] | IntArray
Floats = Sequence[float] | FloatArray
Groups = Sequence[MutableMapping[int, float]]
"""Load of the group of each link on every link that it crosses, at rate 1. They stand beside the table because numba needs a millisecond to
see what is in a tuple with dicts of its own."""
Heap = list[tuple[float, int]]


class FlowTable(NamedTuple):
    """Flow classes and links as numbers: in lists and dicts, or in what numba has for them."""

    route: Sequence[Ints]
    """Links of each class. In arrays all are of one length, filled up with the last link, which has no bounds."""
    unit: Sequence[Floats]
    """Load of one flow of the class on each of them at rate 1; 0 on the last."""
    cap: list[int] | IntArray
    """Link that is the cap of each class; the last without one."""
    limit: list[float] | FloatArray
    """Highest rate of each class."""
    n_flows: list[float] | FloatArray
    """Flows in flight of each class."""
    bottleneck: list[int] | IntArray
    """Bottleneck of each class in flight; its rate is the fair rate there."""
    capacity: list[float] | FloatArray
    """Capacity of each link."""
    first: list[int] | IntArray
    """First place of each link in ``crossing``."""
    crossing: list[int] | IntArray
    """Classes in flight on each link, those of its group first."""
    load: list[float] | FloatArray
    """Load of each of these, at rate 1."""
    n_crossing: list[int] | IntArray
    """Number of classes in flight on each link."""
    n_group: list[int] | IntArray
    """Number of classes in the group of each link."""
    fair: list[float] | FloatArray
    """Fair rate of each link."""
    taken: list[float] | FloatArray
    """Bytes per second that each link carries."""
    group: list[float] | FloatArray
    """Load of the group of each link on the link itself."""
    guessed: list[int] | IntArray
    """1 for a link that is full only since a class entered, at a rate that is a guess."""
    waiting: list[int] | IntArray
    """1 for a link that waits for a look."""
    looks: list[int] | IntArray
    """Looks at each link since its loads were added up."""
    n_looks: list[int] | IntArray
    """Looks so far: one number."""


def settle(t: FlowTable, g: Groups, flows: Ints, counts: Floats, patience: int) -> tuple[IntArray, FloatArray]:
    """Set the number of flows in flight of some classes and bring all links into balance.

    Returns
    -------
    tuple of arrays
        All classes with another rate and those of ``flows`` that are in flight, some more than once, and their rates. Rates without
        classes, with the table out of balance, when the change reaches further than ``patience`` looks.
    """
    heap, moved = [(INF, -1)], [0 for _ in range(0)]
    changed = [flows[place] for place in range(len(flows)) if counts[place] > 0.0]
    for place in range(len(flows)):
        flow = flows[place]
        if t.n_flows[flow] > 0.0:
            _leave(t, g, flow, heap)
        if counts[place] > 0.0:
            _enter(t, g, flow, counts[place], heap)
    last = t.n_looks[0] + patience
    while t.n_looks[0] < last:
        _, link = heappop(heap)
        if link < 0:
            rates = [t.fair[t.bottleneck[flow]] for flow in changed]
            for each in moved:
                changed.extend(t.crossing[t.first[each] : t.first[each] + t.n_group[each]])
                rates.extend([t.fair[each]] * t.n_group[each])
            return np.array(changed, dtype=np.int64), np.array(rates)
        t.waiting[link] = 0
        if _look(t, g, link, heap, changed):
            moved.append(link)
    return np.zeros(0, dtype=np.int64), np.array([INF])


def clear(t: FlowTable, g: Groups, links: Ints) -> None:
    """Empty some links; classes on them must not be in flight on others."""
    for link in links:
        t.fair[link], t.taken[link], t.group[link] = INF, 0.0, 0.0
        t.n_crossing[link], t.n_group[link], t.waiting[link], t.guessed[link] = 0, 0, 0, 0
        g[link].clear()


def put(t: FlowTable, g: Groups, flows: Ints, counts: Floats, bottlenecks: Ints) -> None:
    """Put classes in flight whose bottlenecks have their fair rates; nothing else may be on their links."""
    for place in range(len(flows)):
        _put(t, g, flows[place], counts[place], bottlenecks[place])


def _put(t: FlowTable, g: Groups, flow: int, count: float, bottleneck: int) -> None:
    t.n_flows[flow], t.bottleneck[flow] = count, bottleneck
    if t.limit[flow] < INF:
        t.capacity[t.cap[flow]] = t.limit[flow] * count
    for link, unit in zip(t.route[flow], t.unit[flow]):  # noqa: B905 - numba knows no strict
        if unit > 0.0:
            place = t.first[link] + t.n_crossing[link]
            t.crossing[place], t.load[place] = flow, unit * count
            t.n_crossing[link] += 1
            t.taken[link] += unit * count * t.fair[bottleneck]
            _more(t, g, bottleneck, link, unit * count)
    _join(t, flow, bottleneck, t.first[bottleneck] + t.n_crossing[bottleneck] - 1)


def _enter(t: FlowTable, g: Groups, flow: int, count: float, heap: Heap) -> None:
    """Add a class at the lowest fair rate on its route; if no link there is full, it saturates the link with least room."""
    t.capacity[t.cap[flow]] = t.limit[flow] * count
    bottleneck = t.route[flow][0]
    for link in t.route[flow]:
        if t.fair[link] < t.fair[bottleneck]:
            bottleneck = link
    if t.fair[bottleneck] == INF:
        guess = INF
        for link, unit in zip(t.route[flow], t.unit[flow]):  # noqa: B905
            room = max(0.0, t.capacity[link] - t.taken[link])
            if unit > 0.0 and room < guess * unit * count:
                guess, bottleneck = room / (unit * count), link
        t.fair[bottleneck], t.guessed[bottleneck] = guess, 1
        if not t.waiting[bottleneck]:
            t.waiting[bottleneck] = 1
            heappush(heap, (0.0, bottleneck))
    _put(t, g, flow, count, bottleneck)
    _touch(t, t.route[flow], heap)


def _leave(t: FlowTable, g: Groups, flow: int, heap: Heap) -> None:
    count, bottleneck = t.n_flows[flow], t.bottleneck[flow]
    _part(t, flow, bottleneck)
    for link, unit in zip(t.route[flow], t.unit[flow]):  # noqa: B905
        if unit > 0.0:
            place, last = t.first[link] + t.n_group[link], t.first[link] + t.n_crossing[link] - 1
            while t.crossing[place] != flow:
                place += 1
            t.crossing[place], t.load[place] = t.crossing[last], t.load[last]
            t.n_crossing[link] -= 1
            t.taken[link] -= unit * count * t.fair[bottleneck]
            _less(t, g, bottleneck, link, unit * count)
    t.n_flows[flow] = 0.0
    _touch(t, t.route[flow], heap)


def _hand_over(t: FlowTable, g: Groups, flow: int, link: int, place: int) -> None:
    """Move a class to another bottleneck, at its current fair rate."""
    taken, count, loser = t.taken, t.n_flows[flow], t.bottleneck[flow]
    step = t.fair[link] - t.fair[loser]
    _part(t, flow, loser)
    _join(t, flow, link, place)
    t.bottleneck[flow] = link
    for each, unit in zip(t.route[flow], t.unit[flow]):  # noqa: B905
        load = unit * count
        if load > 0.0:
            taken[each] += load * step
            _less(t, g, loser, each, load)
            _more(t, g, link, each, load)


def _join(t: FlowTable, flow: int, link: int, place: int) -> None:
    """Add a class to the group of a link."""
    crossing, load, edge = t.crossing, t.load, t.first[link] + t.n_group[link]
    while crossing[place] != flow:
        place += 1
    crossing[place], crossing[edge] = crossing[edge], flow
    load[place], load[edge] = load[edge], load[place]
    t.n_group[link] += 1


def _part(t: FlowTable, flow: int, link: int) -> None:
    """Remove a class from the group of a link."""
    crossing, load = t.crossing, t.load
    place, edge = t.first[link], t.first[link] + t.n_group[link] - 1
    while crossing[place] != flow:
        place += 1
    crossing[place], crossing[edge] = crossing[edge], flow
    load[place], load[edge] = load[edge], load[place]
    t.n_group[link] -= 1


def _more(t: FlowTable, g: Groups, link: int, other: int, load: float) -> None:
    """Add a class to the load of a link's group on another link."""
    g[link][other] = g[link].get(other, 0.0) + load
    if other == link:
        t.group[link] = g[link][other]


def _less(t: FlowTable, g: Groups, link: int, other: int, load: float) -> None:
    """Take a class out of the load of a link's group on another link."""
    left = g[link][other] - load
    if left != 0.0 and left < BIG_LOSS * load:
        left = _added_up(t, link, other)
    if left == 0.0:
        del g[link][other]
    else:
        g[link][other] = left
    if other == link:
        t.group[link] = left


def _added_up(t: FlowTable, link: int, other: int) -> float:
    """Return the load of a link's group on another link."""
    load = 0.0
    for place in range(t.first[link], t.first[link] + t.n_group[link]):
        flow = t.crossing[place]
        for each, unit in zip(t.route[flow], t.unit[flow]):  # noqa: B905
            if each == other:
                load += unit * t.n_flows[flow]
    return load


def _touch(t: FlowTable, links: Iterable[int], heap: Heap) -> None:
    """Let links that are out of balance wait for a look, in the order of the lower of their fair rates before and after."""
    fair, taken, capacity, group, waiting = t.fair, t.taken, t.capacity, t.group, t.waiting
    for link in links:
        key, left = fair[link], capacity[link] - taken[link]
        if key == INF:
            if left >= -SAME * capacity[link]:
                continue
            key = 0.0
        elif group[link] > 0.0:
            step = left / group[link]
            if -SAME * key <= step <= SAME * key:
                continue
            if step < 0.0:
                key += step
        if not waiting[link]:
            waiting[link] = 1
            heappush(heap, (key, link))


def _look(t: FlowTable, g: Groups, link: int, heap: Heap, changed: list[int]) -> bool:
    """Bring a link into balance, touch all that this reaches, and return whether its fair rate is another."""
    t.n_looks[0] += 1
    t.looks[link] += 1
    fair, capacity, guessed, gone = t.fair[link], t.capacity[link], t.guessed[link] > 0, [0 for _ in range(0)]
    n_group = t.n_group[link]
    if not n_group or t.looks[link] >= WEIGH_EVERY or t.group[link] * fair < SMALL_SHARE * capacity:
        others = _weigh(t, g, link)
    else:
        others = t.taken[link] - t.group[link] * fair
    if n_group:
        new = (capacity - others) / t.group[link]
        if new < fair or guessed:
            new, others = _claim(t, g, link, min(new, fair), others)
        if new > fair or guessed:
            new, others = _release(t, g, link, new, others, gone)
    elif others > capacity * (1.0 + SAME):
        # From zero Newton's method claims all flows and gives back those that are slower.
        fair = t.fair[link] = 0.0
        new, others = _claim(t, g, link, 0.0, others)
    else:
        new = INF
    t.guessed[link] = 0
    if not gone and t.n_group[link] == n_group and abs(new - fair) <= SAME * fair:
        return False
    step, taken = new - fair, t.taken
    for each, load in g[link].items():
        taken[each] += load * step
    t.fair[link], t.taken[link] = new, capacity if new < INF else others
    _touch(t, g[link], heap)
    changed.extend(gone)
    for flow in gone:
        _touch(t, t.route[flow], heap)
    return True


def _weigh(t: FlowTable, g: Groups, link: int) -> float:
    """Sum again the load of the flows on a link, and return that of the flows outside its group."""
    others, edge = 0.0, t.first[link] + t.n_group[link]
    for place in range(edge, t.first[link] + t.n_crossing[link]):
        others += t.load[place] * t.fair[t.bottleneck[t.crossing[place]]]
    if t.n_group[link]:
        t.group[link] = g[link][link] = sum(t.load[t.first[link] : edge])
    t.looks[link] = 0
    return others


def _claim(t: FlowTable, g: Groups, link: int, new: float, others: float) -> tuple[float, float]:
    """Take flows that are faster than a link's new fair rate into its group, at the fair rate that it has now.

    What the flows take together is a concave function of the fair rate, so that Newton's method steps from anywhere to the left of
    the solution and from there up to it. ``new`` is where the first step leads. Each further one gives back what it passes.

    Returns
    -------
    tuple of float
        New fair rate, and what flows of other groups take.
    """
    crossing, load, bottleneck, fair = t.crossing, t.load, t.bottleneck, t.fair
    own, highest, claimed = t.group[link], new * (1.0 + SAME), [(0.0, 0) for _ in range(0)]
    group = own
    for place in range(t.first[link] + t.n_group[link], t.first[link] + t.n_crossing[link]):
        above = fair[bottleneck[crossing[place]]]
        if above > highest:
            claimed.append((above, place))
            others -= load[place] * above
            group += load[place]
    n_claimed = -1
    while n_claimed != len(claimed):
        n_claimed, new, kept = len(claimed), (t.capacity[link] - others) / group, [(0.0, 0) for _ in range(0)]
        group, lowest = own, new * (1.0 - SAME)
        for above, place in claimed:
            if above < lowest:
                others += load[place] * above
            else:
                kept.append((above, place))
                group += load[place]
        claimed = kept
    for _, place in claimed:
        # Those before it are at their new places, and none of those behind it has moved.
        _hand_over(t, g, crossing[place], link, place)
    return new, others


def _release(t: FlowTable, g: Groups, link: int, new: float, others: float, gone: list[int]) -> tuple[float, float]:
    """Hand over flows of a link's group that are held back elsewhere below its new fair rate; see ``_claim`` for what is returned.

    Newton's method again: each step leads to a rate that is too low or right, and those who leave make room for the next.
    """
    looked_to = -1.0
    while looked_to < new < INF:
        # Those who leave make room and take the rate further up, but seldom beyond this.
        looked_to = FURTHER * new
        held, n_held = _held_back(t, g, link, looked_to), -1
        while n_held != len(held):
            n_held, lowest, kept = len(held), new * (1.0 - SAME), [(0.0, 0.0, 0, 0) for _ in range(0)]
            for slower, load, flow, other in held:
                if slower < lowest:
                    others += load * slower
                    _hand_over(t, g, flow, other, t.first[other] + t.n_group[other])
                    gone.append(flow)
                else:
                    kept.append((slower, load, flow, other))
            if len(kept) < n_held:
                new = (t.capacity[link] - others) / t.group[link] if t.n_group[link] else INF
            held = kept
    return new, others


def _held_back(t: FlowTable, g: Groups, link: int, below: float) -> list[tuple[float, float, int, int]]:
    """Return the flows of a link's group that are held back elsewhere below a rate: that rate, their load, the flow, the other link."""
    crossing, fair, route, found = t.crossing, t.fair, t.route, [(0.0, 0.0, 0, 0) for _ in range(0)]
    is_any = False
    for each in g[link]:
        if fair[each] < below and each != link:
            is_any = True
            break
    if is_any:
        for place in range(t.first[link], t.first[link] + t.n_group[link]):
            lowest, other = below, -1
            for each in route[crossing[place]]:
                if fair[each] < lowest and each != link:
                    lowest, other = fair[each], each
            if other >= 0:
                found.append((lowest, t.load[place], crossing[place], other))
    return found
