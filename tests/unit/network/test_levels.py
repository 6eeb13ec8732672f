from __future__ import annotations

from collections.abc import Sequence

import pytest

from clustersim.network import levels as module
from clustersim.network import ripple
from clustersim.network.balance import Balance
from clustersim.network.compiled import CompiledBalance, Loops
from clustersim.network.levels import FEW, Levels
from clustersim.network.wiring import Kind, Wiring
from tests.unit.network.factories import kind, wiring


def made(kinds: Sequence[Kind], capacity: Sequence[float], *, compiled: bool | None = False) -> Levels:
    return Levels(wiring=wiring(kinds, capacity), compiled=compiled)


def change(levels: Levels, counts: dict[int, int]) -> dict[int, float]:
    """Change counts of kinds of one component and return the new levels."""
    part = levels.part(levels.wiring.components.item(next(iter(counts))))
    kinds, found = levels.change(part, tuple(counts.items()))
    return {int(number): float(level) for number, level in zip(kinds, found, strict=True)}


def test_only_new_levels_are_returned() -> None:
    levels = made([kind([0]), kind([0, 1]), kind([1])], [2.0, 11.0])
    assert change(levels, {0: 1, 1: 1, 2: 1}) == {0: 1.0, 1: 1.0, 2: 10.0}

    assert change(levels, {2: 2}) == {2: 5.0}
    assert change(levels, {2: 0}) == {}


def test_a_kind_that_was_asked_about_is_returned_even_with_its_old_level() -> None:
    levels = made([kind([0], cap=1.0)], [8.0])
    change(levels, {0: 1})

    assert change(levels, {0: 2}) == {0: 1.0}


def test_a_state_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[object] = []
    real = module.progressive_filling
    monkeypatch.setattr(module, "progressive_filling", lambda problem: solved.append(problem) or real(problem))
    levels = made([kind([0]), kind([0])], [8.0])

    for _ in range(5):
        change(levels, {0: 1})
        change(levels, {1: 1})
        change(levels, {0: 0, 1: 0})

    assert len(solved) == 3  # one, both, none


def test_solutions_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_KEPT", 20)
    levels = made([kind([0])], [8.0])

    for count in range(1, 14):
        levels.solve(((0, count),))

    # Each is one level, and itself.
    assert list(levels._kept) == [((0, 11),), ((0, 12),), ((0, 13),)]


def test_a_change_that_came_before_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = made([kind([0]), kind([0])], [8.0])
    ways = [{0: 1}, {1: 1}, {0: 0, 1: 0}]
    first = [change(levels, way) for way in ways]
    monkeypatch.setattr(Levels, "_step", None)

    assert [change(levels, way) for way in ways] == first
    assert levels.part(0).state() == ()


def test_steps_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_KEPT", 12)
    levels = made([kind([0]), kind([0])], [8.0])

    for count in range(1, 9):
        assert change(levels, {0: count}) == {0: 8.0 / count}

    assert levels._n_kept <= 12
    assert sum(len(solution.steps) for solution in levels._kept.values()) <= 3


def test_how_many_kinds_are_few_can_be_said() -> None:
    kinds, capacity = [kind([0, number + 1]) for number in range(2 * FEW)], [2.0 * FEW, *([1000.0] * 2 * FEW)]
    levels = Levels(wiring=wiring(kinds, capacity), compiled=False, few=2 * FEW)

    assert set(change(levels, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}
    assert not levels.part(0).many
    assert len(levels._kept) == 2  # nothing, and all


def test_states_of_many_kinds_are_not_kept() -> None:
    levels = made([kind([0])] + [kind([0, link + 1]) for link in range(FEW)], [8.0] * (FEW + 1))

    levels.solve(tuple((number, 1) for number in range(FEW + 1)))

    assert len(levels._kept) == 0


def many(n_kinds: int, *, compiled: bool | None = False) -> Levels:
    """Return kinds on a cell of their own each, and all on one that is shared."""
    return made([kind([0, number + 1]) for number in range(n_kinds)], [float(n_kinds), *([1e6] * n_kinds)], compiled=compiled)


def test_many_kinds_are_followed_instead_of_solved_anew() -> None:
    levels = many(2 * FEW)

    assert set(change(levels, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}
    left = change(levels, {0: 0})

    assert set(left) == set(range(1, 2 * FEW))
    assert list(left.values()) == pytest.approx([2 * FEW / (2 * FEW - 1)] * (2 * FEW - 1), rel=1e-12)
    assert levels._balance is not None
    assert levels._balance.n_looks == 1


def test_a_part_that_went_idle_begins_with_few_again() -> None:
    levels = many(2 * FEW)
    change(levels, dict.fromkeys(range(2 * FEW), 1))

    assert change(levels, dict.fromkeys(range(2 * FEW), 0)) == {}
    assert change(levels, {3: 1}) == {3: 64.0}
    assert not levels.part(0).many
    assert set(change(levels, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}


def test_many_kinds_may_leave_one_by_one() -> None:
    levels = many(2 * FEW)
    change(levels, dict.fromkeys(range(2 * FEW), 1))

    for number in range(2 * FEW - 1):
        change(levels, {number: 0})

    assert levels.part(0).counts == {2 * FEW - 1: 1}
    assert change(levels, {2 * FEW - 1: 2}) == pytest.approx({2 * FEW - 1: FEW}, rel=1e-12)


def test_a_change_that_reaches_too_far_is_filled_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    levels = many(2 * FEW)
    change(levels, dict.fromkeys(range(2 * FEW), 1))

    left = change(levels, {0: 0})

    assert list(left.values()) == pytest.approx([2 * FEW / (2 * FEW - 1)] * (2 * FEW - 1), rel=1e-12)


def test_components_do_not_hear_of_each_other() -> None:
    levels = made([kind([0]), kind([1])], [8.0, 4.0])

    assert change(levels, {0: 1}) == {0: 8.0}
    assert change(levels, {1: 1}) == {1: 4.0}
    assert levels.part(0).state() == ((0, 1),)


class Recorder(CompiledBalance):
    """Counts how often it is filled, and settles by the interpreter."""

    def __init__(self, laid: Wiring, loops: object) -> None:
        super().__init__(laid, Loops(settle=ripple.settle, lay=ripple.lay, clear=ripple.clear))


@pytest.fixture
def numba_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numba be there, its loops not loaded yet, and worth it after three looks."""
    monkeypatch.setattr(module, "COMPILE_AFTER", 3)
    monkeypatch.setattr(module, "numba_is_installed", lambda: True)
    monkeypatch.setattr(module, "compiled_loops_are_loaded", lambda: False)
    monkeypatch.setattr(module, "compiled_loops", lambda: None)
    monkeypatch.setattr(module, "CompiledBalance", Recorder)


@pytest.mark.usefixtures("numba_at_hand")
def test_the_loops_are_compiled_after_a_while_where_numba_is_installed() -> None:
    levels, reference = many(2 * FEW, compiled=None), many(2 * FEW)
    for one in (levels, reference):
        change(one, dict.fromkeys(range(2 * FEW), 1))

    ways: list[str] = []
    for number in range(6):
        found, expected = change(levels, {number: 0}), change(reference, {number: 0})
        ways.append(type(levels._balance).__name__)
        # Everything in flight has another level, also in the change that goes over to the compiled loops.
        assert found == pytest.approx(expected, rel=1e-12)

    assert ways == ["Balance"] * 3 + ["Recorder"] * 3


@pytest.mark.usefixtures("numba_at_hand")
def test_all_parts_go_over_to_the_compiled_loops_together() -> None:
    # Twice the same part of the network, side by side.
    n = 2 * FEW
    kinds = [kind([first, first + 1 + number]) for first in (0, n + 1) for number in range(n)]
    levels = made(kinds, [float(n), *([1000.0] * n)] * 2, compiled=None)
    for first in (0, n):
        change(levels, dict.fromkeys(range(first, first + n), 1))

    for number in range(5):
        change(levels, {number: 0})

    assert isinstance(levels._balance, Recorder)
    assert list(change(levels, {n: 0}).values()) == pytest.approx([n / (n - 1)] * (n - 1), rel=1e-12)


def test_the_loops_are_not_compiled_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPILE_AFTER", 0)
    monkeypatch.setattr(module, "numba_is_installed", lambda: False)
    monkeypatch.setattr(module, "compiled_loops_are_loaded", lambda: False)
    levels = many(2 * FEW, compiled=None)
    change(levels, dict.fromkeys(range(2 * FEW), 1))

    change(levels, {0: 0})

    assert isinstance(levels._balance, Balance)
