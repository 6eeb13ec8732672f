"""The algorithm of ``balance.py`` as plain loops over arrays of numbers, for a compiler.

Nothing here is an object: kinds, cells and *entries*, where a kind crosses a cell, are numbers. There are no strands. A cell that
moves takes each of its kinds along by itself, which costs a compiler little, and an interpreter most of its time.
"""

# pyright: reportArgumentType=false
# An element of an array has, for the type checker, the type of a part of it as well.

from __future__ import annotations

from heapq import heappop, heappush

from clustersim.network.balance import FURTHER, SAME, SMALL_SHARE, WEIGH_EVERY
from clustersim.network.strands import BIG_LOSS, INF
from clustersim.network.table import N_CHANGED, TICK, Table
from clustersim.topology.cluster import FloatArray, IntArray


def settle(t: Table, kinds: IntArray, counts: FloatArray, patience: int) -> bool:
    """Set how many flows of some kinds are in flight, and bring all cells into balance.

    Returns
    -------
    bool
        False, with the table out of order, when the change reaches further than ``patience`` looks.
    """
    t.counters[N_CHANGED] = 0
    heap = [(INF, -1)]
    for place in range(len(kinds)):
        kind, count = kinds[place], counts[place]
        in_flight = t.loads[t.starts[kind]] > 0.0
        if in_flight and count > 0.0:
            _recount(t, kind, count, heap)
        elif in_flight:
            _leave(t, kind, heap)
        elif count > 0.0:
            _enter(t, kind, count, heap)
    last = t.counters[TICK] + patience
    # A look gives each kind on its cell a level, or two.
    while t.counters[TICK] < last and t.counters[N_CHANGED] + 2 * len(t.limits) <= len(t.changed):
        _, cell = heappop(heap)
        if cell < 0:
            return True
        t.waiting[cell] = 0
        _look(t, cell, heap)
    return False


def lay(t: Table, kinds: IntArray) -> None:
    """Put kinds into the rings, at the levels and with the owners that stand in the table; their cells must be empty."""
    n_entries, n_cells = len(t.cells), len(t.capacity)
    for place in range(len(kinds)):
        kind = kinds[place]
        for entry in range(t.starts[kind], t.starts[kind + 1]):
            cell = t.cells[entry]
            if entry == t.owner[kind]:
                _join(t, entry, n_entries + cell)
                t.own[cell] += t.loads[entry]
            else:
                _join(t, entry, n_entries + n_cells + cell)
                t.others[cell] += t.loads[entry] * t.level[kind]


def clear(t: Table, cells: IntArray) -> None:
    """Empty the rings of some cells."""
    n_entries, n_cells = len(t.cells), len(t.capacity)
    for place in range(len(cells)):
        cell = cells[place]
        for ring in (n_entries + cell, n_entries + n_cells + cell):
            t.after[ring] = ring
            t.before[ring] = ring
        t.cell_level[cell], t.waiting[cell], t.others[cell], t.own[cell] = INF, 0, 0.0, 0.0


def _join(t: Table, entry: int, ring: int) -> None:
    following = t.after[ring]
    t.after[ring], t.before[entry] = entry, ring
    t.after[entry], t.before[following] = following, entry


def _part(t: Table, entry: int) -> None:
    earlier, following = t.before[entry], t.after[entry]
    t.after[earlier], t.before[following] = following, earlier


def _note(t: Table, kind: int) -> None:
    t.changed[t.counters[N_CHANGED]] = kind
    t.counters[N_CHANGED] += 1


def _enter(t: Table, kind: int, count: float, heap: list[tuple[float, int]]) -> None:
    """Put a kind in flight at the lowest level on its way; if nothing there is full it fills what has least left."""
    level, owner = t.limits[kind], -1
    for entry in range(t.starts[kind], t.starts[kind + 1]):
        t.loads[entry] = t.units[entry] * count
        if t.cell_level[t.cells[entry]] < level:
            level, owner = t.cell_level[t.cells[entry]], entry
    fills = level == INF
    if fills:
        for entry in range(t.starts[kind], t.starts[kind + 1]):
            cell = t.cells[entry]
            room = max(0.0, (t.capacity[cell] - t.others[cell]) / t.loads[entry])
            if room < level:
                level, owner = room, entry
    t.level[kind], t.owner[kind] = level, owner
    n_entries, n_cells = len(t.cells), len(t.capacity)
    for entry in range(t.starts[kind], t.starts[kind + 1]):
        cell = t.cells[entry]
        if entry == owner:
            _join(t, entry, n_entries + cell)
            t.own[cell] += t.loads[entry]
        else:
            _join(t, entry, n_entries + n_cells + cell)
            t.others[cell] += t.loads[entry] * level
    _touch_way(t, kind, heap)
    if fills:
        cell = t.cells[owner]
        if not t.waiting[cell]:
            t.waiting[cell] = 1
            heappush(heap, (0.0, cell))
    _note(t, kind)


def _leave(t: Table, kind: int, heap: list[tuple[float, int]]) -> None:
    for entry in range(t.starts[kind], t.starts[kind + 1]):
        cell = t.cells[entry]
        _part(t, entry)
        if entry == t.owner[kind]:
            _disown(t, cell, t.loads[entry])
        else:
            t.others[cell] -= t.loads[entry] * t.level[kind]
        t.loads[entry] = 0.0
    _touch_way(t, kind, heap)
    t.level[kind], t.owner[kind] = 0.0, -1


def _recount(t: Table, kind: int, count: float, heap: list[tuple[float, int]]) -> None:
    for entry in range(t.starts[kind], t.starts[kind + 1]):
        cell, more = t.cells[entry], t.units[entry] * count - t.loads[entry]
        t.loads[entry] += more
        if entry == t.owner[kind]:
            t.own[cell] += more
        else:
            t.others[cell] += more * t.level[kind]
    _touch_way(t, kind, heap)


def _touch_way(t: Table, kind: int, heap: list[tuple[float, int]]) -> None:
    _touch(t, [t.cells[entry] for entry in range(t.starts[kind], t.starts[kind + 1])], heap)


def _touch(t: Table, touched: list[int], heap: list[tuple[float, int]]) -> None:
    """Let cells that are out of balance wait for a look, in the order of the lower of their levels before and after."""
    cell_level, others, own, capacity, after, waiting = t.cell_level, t.others, t.own, t.capacity, t.after, t.waiting
    n_entries = len(t.cells)
    for cell in touched:
        level = key = cell_level[cell]
        if level == INF:
            if others[cell] <= capacity[cell] * (1.0 + SAME):
                continue
            key = 0.0
        elif after[n_entries + cell] < n_entries:
            new = (capacity[cell] - others[cell]) / own[cell]
            if new < level:
                if level - new <= SAME * level:
                    continue
                key = new
            elif new - level <= SAME * level:
                continue
        if not waiting[cell]:
            waiting[cell] = 1
            heappush(heap, (key, cell))


def _look(t: Table, cell: int, heap: list[tuple[float, int]]) -> None:
    """Bring a cell into balance, and touch all that this reaches."""
    t.counters[TICK] += 1
    t.stamp[cell] = t.counters[TICK]
    touched = [cell]
    owns = t.after[len(t.cells) + cell] < len(t.cells)
    t.looks[cell] += 1
    if not owns or t.looks[cell] >= WEIGH_EVERY or t.capacity[cell] - t.others[cell] < SMALL_SHARE * t.capacity[cell]:
        _weigh(t, cell)
    level = t.cell_level[cell]
    if owns:
        new = (t.capacity[cell] - t.others[cell]) / t.own[cell]
    else:
        level = t.cell_level[cell] = INF
        new = _overflow(t, cell)
    if new < level:
        _sink(t, cell, new, touched)
    if new > level or (owns and level == INF):
        _rise(t, cell, touched)
    _touch(t, touched, heap)


def _weigh(t: Table, cell: int) -> None:
    """Add up anew what the kinds on a cell take."""
    loads, after = t.loads, t.after
    own, others, ring = 0.0, 0.0, len(t.cells) + cell
    entry = after[ring]
    while entry != ring:
        own += loads[entry]
        entry = after[entry]
    ring += len(t.capacity)
    entry = after[ring]
    while entry != ring:
        others += loads[entry] * t.level[t.kinds[entry]]
        entry = after[entry]
    t.own[cell], t.others[cell], t.looks[cell] = own, others, 0


def _disown(t: Table, cell: int, load: float) -> None:
    """Note that a kind is no longer in the ring of those that a cell owns."""
    t.own[cell] -= load
    if t.own[cell] < load * BIG_LOSS and t.after[len(t.cells) + cell] < len(t.cells):
        _weigh(t, cell)


def _overflow(t: Table, cell: int) -> float:
    """Return a level for a cell that owns nothing: infinite if not full, else one step of Newton's method from the highest on it."""
    if t.others[cell] <= t.capacity[cell] * (1.0 + SAME):
        return INF
    ring = len(t.cells) + len(t.capacity) + cell
    top, steep = 0.0, 0.0
    entry = t.after[ring]
    while entry != ring:
        level = t.level[t.kinds[entry]]
        if level > top:
            top, steep = level, 0.0
        if level == top:
            steep += t.loads[entry]
        entry = t.after[entry]
    # Low enough for the highest to be claimed even where the overflow is mere round-off.
    return min(top + (t.capacity[cell] - t.others[cell]) / steep, top * (1.0 - 4.0 * SAME))


def _sink(t: Table, cell: int, new: float, touched: list[int]) -> None:
    """Give a cell a lower level; kinds on it that are at a higher one become its own.

    What the kinds take together is a concave function of the level, so that Newton's method steps from anywhere to the left of
    the solution and from there up to it. ``new`` is where the first step leads. Each further one gives back what it passes.
    """
    loads, level, kinds, after = t.loads, t.level, t.kinds, t.after
    others, own = t.others[cell], t.own[cell]
    ring = len(t.cells) + len(t.capacity) + cell
    claimed = [ring]
    entry = after[ring]
    highest = new * (1.0 + SAME)
    while entry != ring:
        above = level[kinds[entry]]
        if above > highest:
            claimed.append(entry)
            others -= loads[entry] * above
            own += loads[entry]
        entry = after[entry]
    if len(claimed) == 1 and t.cell_level[cell] - new <= SAME * new:
        return
    most, n_claimed = own, 0
    while n_claimed != len(claimed):
        n_claimed = len(claimed)
        new = (t.capacity[cell] - others) / own
        kept = [ring]
        for entry in claimed[1:]:
            below = level[kinds[entry]]
            if below < new * (1.0 - SAME):
                others += loads[entry] * below
                own -= loads[entry]
            else:
                kept.append(entry)
        claimed = kept
    for entry in claimed[1:]:
        _claim(t, cell, entry, touched)
    _follow(t, cell, new, touched)
    t.cell_level[cell], t.others[cell], t.own[cell] = new, others, own
    if own < BIG_LOSS * most:
        _weigh(t, cell)


def _rise(t: Table, cell: int, touched: list[int]) -> None:
    """Give a cell a higher level; kinds that it owns and that are held back elsewhere below it leave.

    Newton's method again: each step leads to a level that is too low or right, and those who leave make room for the next.
    """
    loads, others, own, capacity = t.loads, t.others[cell], t.own[cell], t.capacity[cell]
    new = (capacity - others) / own
    most, looked_to = own, 0.0
    while new > looked_to:
        # Those who leave make room and take the level further up, but seldom beyond this.
        looked_to = FURTHER * new
        staying = _held_back(t, cell, looked_to)
        n_staying = 0
        while n_staying != len(staying):
            n_staying = len(staying)
            kept = [staying[0]]
            for open_to, entry, owner in staying[1:]:
                if open_to < new * (1.0 - SAME):
                    others += loads[entry] * open_to
                    own -= loads[entry]
                    _release(t, entry, owner, open_to, touched)
                else:
                    kept.append((open_to, entry, owner))
            if len(kept) < len(staying):
                new = (capacity - others) / own if t.after[len(t.cells) + cell] < len(t.cells) else INF
            staying = kept
        if new == INF:
            break
    _follow(t, cell, new, touched)
    t.cell_level[cell], t.others[cell], t.own[cell] = new, others, own
    if own < BIG_LOSS * most:
        _weigh(t, cell)


def _held_back(t: Table, cell: int, level: float) -> list[tuple[float, int, int]]:
    """Return the owned kinds that have a lower level than this elsewhere: that level, their entry here, and their entry there."""
    starts, cells, kinds, limits, after, cell_level = t.starts, t.cells, t.kinds, t.limits, t.after, t.cell_level
    found = [(INF, -1, -1)]
    ring = len(cells) + cell
    entry = after[ring]
    while entry != ring:
        kind = kinds[entry]
        open_to, owner = limits[kind], -1
        for other in range(starts[kind], starts[kind + 1]):
            lower = cell_level[cells[other]]
            if lower < open_to and other != entry:
                open_to, owner = lower, other
        if open_to < level:
            found.append((open_to, entry, owner))
        entry = after[entry]
    return found


def _claim(t: Table, cell: int, entry: int, touched: list[int]) -> None:
    """Make a kind the cell's own; it keeps its level for now."""
    kind = t.kinds[entry]
    _part(t, entry)
    _join(t, entry, len(t.cells) + cell)
    loser = t.owner[kind]
    if loser >= 0:
        lost = t.cells[loser]
        _part(t, loser)
        _join(t, loser, len(t.cells) + len(t.capacity) + lost)
        t.others[lost] += t.loads[loser] * t.level[kind]
        _disown(t, lost, t.loads[loser])
        touched.append(lost)
    t.owner[kind] = entry


def _release(t: Table, entry: int, owner: int, new: float, touched: list[int]) -> None:
    """Hand a kind over to another owner, or to its limit, at the level that it has there."""
    kind, n_entries, n_cells = t.kinds[entry], len(t.cells), len(t.capacity)
    old = t.level[kind]
    _part(t, entry)
    _join(t, entry, n_entries + n_cells + t.cells[entry])
    if owner >= 0:
        winner = t.cells[owner]
        _part(t, owner)
        _join(t, owner, n_entries + winner)
        t.own[winner] += t.loads[owner]
        t.others[winner] -= t.loads[owner] * old
    t.owner[kind], t.level[kind] = owner, new
    for other in range(t.starts[kind], t.starts[kind + 1]):
        if other not in (entry, owner):
            t.others[t.cells[other]] += t.loads[other] * (new - old)
        touched.append(t.cells[other])
    _note(t, kind)


def _follow(t: Table, cell: int, new: float, touched: list[int]) -> None:
    """Take all kinds that a cell owns to its new level."""
    starts, cells, kinds, loads, after, others, level = t.starts, t.cells, t.kinds, t.loads, t.after, t.others, t.level
    stamp, changed, tick, n_changed = t.stamp, t.changed, t.counters[TICK], t.counters[N_CHANGED]
    ring = len(cells) + cell
    entry = after[ring]
    while entry != ring:
        kind = kinds[entry]
        step = new - level[kind]
        level[kind] = new
        changed[n_changed] = kind
        n_changed += 1
        for other in range(starts[kind], starts[kind + 1]):
            reached = cells[other]
            others[reached] += loads[other] * step
            if stamp[reached] != tick:
                stamp[reached] = tick
                touched.append(reached)
        entry = after[entry]
    t.counters[N_CHANGED] = n_changed
