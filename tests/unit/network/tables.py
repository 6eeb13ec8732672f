"""Levels that follow changes, in all ways of doing it: change them, read them, and check them by what their docstrings promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from clustersim.network import ripple
from clustersim.network.balance import Balance
from clustersim.network.compiled import CompiledBalance, Loops, compiled_loops, numba_is_installed
from clustersim.network.wiring import Kind, Wiring
from tests.unit.network.factories import INF, kind, wiring

PATIENCE = 1000
Following = Balance | CompiledBalance
needs_numba = pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')")
WAYS = ["strands", "loops", pytest.param("compiled", marks=needs_numba)]
"""The strands; the loops for the compiler as the interpreter runs them, which is slow; the same compiled."""


def following(way: str, laid: Wiring) -> Following:
    if way == "strands":
        return Balance(laid)
    loops = compiled_loops() if way == "compiled" else Loops(settle=ripple.settle, lay=ripple.lay, clear=ripple.clear)
    return CompiledBalance(laid, loops)


def made(way: str, kinds: Sequence[Kind], capacity: Sequence[float]) -> Following:
    return following(way, wiring(kinds, capacity))


def settle(to: Following, counts: Mapping[int, float], patience: int = PATIENCE) -> bool:
    return to.settle(list(counts), list(counts.values()), patience)


def levels(of: Following) -> list[float]:
    """Return the level of each kind; 0 for those that are not in flight."""
    if isinstance(of, CompiledBalance):
        return of._table.level.tolist()
    strands = of._strands
    return [strands.level[owner] if loads else 0.0 for owner, loads in zip(strands.owner, strands.loads, strict=True)]


def out_of_balance(of: Following) -> list[str]:
    """Return what is wrong."""
    return _wrong_table(of) if isinstance(of, CompiledBalance) else _wrong_strands(of)


def _wrong_strands(of: Balance) -> list[str]:
    strands, wrong = of._strands, dict[str, bool]()
    found = levels(of)
    for cell, capacity in enumerate(strands.capacity):
        level, owned = strands.level[cell], strands.owned[cell]
        there = [number for number, loads in enumerate(strands.loads) if cell in loads]
        guests = [number for number in there if number not in owned]
        strand: dict[int, float] = {}
        for number in guests:
            strand[strands.owner[number]] = strand.get(strands.owner[number], 0.0) + strands.loads[number][cell]
        taken = sum(strands.loads[number][cell] * found[number] for number in guests)
        own = sum(strands.loads[number][cell] for number in owned)
        checks = {
            "own add up": own == pytest.approx(strands.own[cell], rel=1e-9, abs=1e-9),
            "others add up": taken == pytest.approx(strands.others[cell], rel=1e-9, abs=1e-9),
            "guests are strands": strands.guests[cell] == pytest.approx(strand, rel=1e-9),
            "strands are guests": all(strands.strands[owner][cell] == load for owner, load in strands.guests[cell].items()),
            "owned by it": all(strands.owner[number] == cell for number in owned),
            **_balance(level, capacity, taken, own, [found[number] for number in guests]),
            "waits for nothing": not of._waiting[cell],
        }
        wrong |= {f"cell {cell}: {claim}": holds for claim, holds in checks.items() if not holds}
    return list(wrong)


def _wrong_table(of: CompiledBalance) -> list[str]:
    table, wrong = of._table, dict[str, bool]()
    n_entries, n_cells = len(table.cells), len(table.capacity)
    for cell in range(n_cells):
        own, others = _ring(of, n_entries + cell), _ring(of, n_entries + n_cells + cell)
        taken = float((table.loads[others] * table.level[table.kinds[others]]).sum())
        own_load = float(table.loads[own].sum())
        level = table.cell_level.item(cell)
        checks = {
            "own add up": own_load == pytest.approx(table.own.item(cell), rel=1e-9, abs=1e-9),
            "others add up": taken == pytest.approx(table.others.item(cell), rel=1e-9, abs=1e-9),
            "owned by it": (table.owner[table.kinds[own]] == own).all(),
            "owned at its level": table.level[table.kinds[own]].tolist() == pytest.approx([level] * len(own), rel=1e-9),
            **_balance(level, table.capacity.item(cell), taken, own_load, table.level[table.kinds[others]].tolist()),
            "waits for nothing": not table.waiting[cell],
        }
        wrong |= {f"cell {cell}: {claim}": bool(holds) for claim, holds in checks.items() if not holds}
    return list(wrong)


def _balance(level: float, capacity: float, taken: float, own: float, guests: Sequence[float]) -> dict[str, bool]:
    """Return what the balance of a cell is, claim by claim."""
    return {
        "nobody above": all(guest <= level * (1.0 + 1e-9) for guest in guests),
        "not overbooked": taken + (own * level if own else 0.0) <= capacity * (1.0 + 1e-9),
        "full": level == INF or taken + own * level >= capacity * (1.0 - 1e-9),
        "full if it owns": level < INF or not own,
    }


def _ring(of: CompiledBalance, ring: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    table, found = of._table, list[int]()
    entry = table.after.item(ring)
    while entry != ring:
        assert table.after[table.before[entry]] == entry
        found.append(entry)
        entry = table.after.item(entry)
    return np.array(found, dtype=np.int64)


def random_wiring(generator: np.random.Generator) -> Wiring:
    n_links, n_kinds = int(generator.integers(1, 12)), int(generator.integers(1, 25))
    kinds: list[Kind] = []
    for _ in range(n_kinds):
        links = generator.choice(n_links, int(generator.integers(1, min(5, n_links) + 1)), replace=False).tolist()
        flows = dict(zip(links, generator.choice([0.5, 1.0, 1.0, 2.0, 14.0], len(links)).tolist(), strict=True))
        cap = float(generator.choice([0.2, 1.0, 3.0, INF, INF, INF]))
        kinds.append(kind(flows, weight=float(generator.choice([0.25, 1.0, 1.0, 2.0])), cap=cap))
    return wiring(kinds, generator.choice([1.0, 2.0, 4.0, 7.3, 33.0], n_links).tolist())
