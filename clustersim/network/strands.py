"""Who holds whom back: kinds in flight by the cell that owns them, and what they take together of every other cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from typing import Final

from clustersim.network.wiring import Wiring

INF: Final = float("inf")
BIG_LOSS: Final = 1e-3
"""A sum of loads that has lost all but this share of what it lost last is added up anew: the rest of it is round-off."""

Cells = dict[int, None]
"""An ordered set."""


@dataclass(slots=True)
class Strands:
    """Levels of cells, and the kinds in flight on them; nothing at first.

    A kind is *owned* by the full cell that holds it back, and has that cell's level. A kind at its cap is owned by a cell of its own,
    which stands behind the cells of the wiring, and whose level is the cap. All kinds that a cell owns move together: what they take
    of another cell is one *strand*, one number for each pair of cells however many flows are in it.
    """

    wiring: Wiring
    capacity: list[float] = field(init=False)
    level: list[float] = field(init=False)
    """Of each cell; infinite if it is not full."""
    owned: list[dict[int, None]] = field(init=False)
    """Kinds that each cell owns."""
    own: list[float] = field(init=False)
    """What these take of it at level 1."""
    others: list[float] = field(init=False)
    """What all other kinds on the cell take of it, at the levels that they have."""
    strands: list[dict[int, float]] = field(init=False)
    """What the kinds that a cell owns take of each other cell at level 1."""
    guests: list[dict[int, float]] = field(init=False)
    """The same strands by the cell that they are on."""
    loads: list[Mapping[int, float]] = field(init=False)
    """What all flows in flight of a kind take of its cells at level 1; empty without any."""
    owner: list[int] = field(init=False)
    """Cell that owns each kind in flight."""
    cap_cell: dict[int, int] = field(init=False)
    """For each kind with a cap, the cell of its own."""
    _units: list[dict[int, float]] = field(init=False)
    """What one flow of each kind takes of its cells at level 1."""
    _sizes: list[dict[int, int]] = field(init=False)
    """Number of kinds in each strand."""

    def __post_init__(self) -> None:
        """Lay the tables."""
        wiring = self.wiring
        cells, loads, limits = wiring.cells.tolist(), wiring.loads.tolist(), wiring.limits.tolist()
        n_kinds, n_cells = len(limits), len(wiring.first_link)
        self._units = [dict(zip(cells[start:end], loads[start:end], strict=True)) for start, end in pairwise(wiring.starts.tolist())]
        self.loads, self.owner = [{} for _ in range(n_kinds)], [-1] * n_kinds
        capped = [kind for kind in range(n_kinds) if limits[kind] < INF]
        self.cap_cell = {kind: n_cells + place for place, kind in enumerate(capped)}
        self.capacity = wiring.capacity_bytes_per_s.tolist()
        self.level = [INF] * n_cells + [limits[kind] for kind in capped]
        n_all = len(self.level)
        self.owned, self.strands, self._sizes = ([{} for _ in range(n_all)] for _ in range(3))
        self.own, self.others, self.guests = [0.0] * n_all, [0.0] * n_cells, [{} for _ in range(n_cells)]

    def cells_of(self, kind: int) -> Mapping[int, float]:
        """Return what one flow of a kind takes of its cells at level 1."""
        return self._units[kind]

    def set_count(self, kind: int, count: float) -> None:
        """Set how many flows of a kind are in flight that nobody owns."""
        units = self._units[kind]
        self.loads[kind] = units if count == 1.0 else {cell: unit * count for cell, unit in units.items()} if count else {}

    def put(self, kind: int, owner: int) -> None:
        """Give a kind that nobody owned to an owner, at its level."""
        level = self.level[owner]
        self._give(kind, owner)
        for cell, load in self.loads[kind].items():
            if cell != owner:
                self.others[cell] += load * level

    def take(self, kind: int) -> None:
        """Take a kind from its owner; nobody owns it then."""
        owner = self.owner[kind]
        level = self.level[owner]
        self._disown(kind)
        for cell, load in self.loads[kind].items():
            if cell != owner:
                self.others[cell] -= load * level

    def hand_over(self, kind: int, to: int, touched: Cells) -> None:
        """Give a kind to another owner, at the level that this has now; its cells are added to ``touched``."""
        owner, others = self.owner[kind], self.others
        old, new = self.level[owner], self.level[to]
        self._disown(kind)
        self._give(kind, to)
        for cell, load in self.loads[kind].items():
            if cell == to:
                others[cell] -= load * old
            elif cell == owner:
                others[cell] += load * new
            else:
                others[cell] += load * (new - old)
            touched[cell] = None

    def move(self, cell: int, new: float) -> None:
        """Take a cell and the strands of its kinds to another level."""
        step, others = new - self.level[cell], self.others
        for other, load in self.strands[cell].items():
            others[other] += load * step
        self.level[cell] = new

    def weigh(self, cell: int) -> None:
        """Add up anew what the kinds on a cell take."""
        level, loads = self.level, self.loads
        self.others[cell] = fsum(load * level[owner] for owner, load in self.guests[cell].items())
        self.own[cell] = fsum(loads[kind][cell] for kind in self.owned[cell])

    def clear(self, kind: int) -> None:
        """Empty the cells of a kind, of whatever is on them."""
        self.loads[kind] = {}
        for cell in (*self._units[kind], *([self.cap_cell[kind]] if kind in self.cap_cell else [])):
            for table in (self.owned, self.strands, self._sizes):
                table[cell].clear()
            self.own[cell] = 0.0
            if cell < len(self.capacity):
                self.guests[cell].clear()
                self.level[cell], self.others[cell] = INF, 0.0

    def _give(self, kind: int, owner: int) -> None:
        self.owner[kind] = owner
        self.owned[owner][kind] = None
        strands, sizes, guests = self.strands[owner], self._sizes[owner], self.guests
        for cell, load in self.loads[kind].items():
            if cell == owner:
                self.own[owner] += load
            elif cell in strands:
                guests[cell][owner] = strands[cell] = strands[cell] + load
                sizes[cell] += 1
            else:
                guests[cell][owner] = strands[cell] = load
                sizes[cell] = 1

    def _disown(self, kind: int) -> None:
        owner = self.owner[kind]
        strands, sizes = self.strands[owner], self._sizes[owner]
        del self.owned[owner][kind]
        for cell, load in self.loads[kind].items():
            if cell == owner:
                self.own[owner] = self._less(self.own[owner], load, owner, cell)
            elif sizes[cell] > 1:
                sizes[cell] -= 1
                self.guests[cell][owner] = strands[cell] = self._less(strands[cell], load, owner, cell)
            else:
                del sizes[cell], strands[cell], self.guests[cell][owner]

    def _less(self, whole: float, load: float, owner: int, cell: int) -> float:
        left = whole - load
        if left < BIG_LOSS * load:
            return fsum(loads[cell] for kind in self.owned[owner] if cell in (loads := self.loads[kind]))
        return left
