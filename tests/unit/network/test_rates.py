from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from clustersim.network import following
from clustersim.network import rates as module
from clustersim.network.following import numba_is_installed
from clustersim.network.rates import FEW, RateCache
from clustersim.network.wiring import FlowClass
from tests.unit.network.factories import flow_class, wiring

needs_numba = pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')")


def made(flow_classes: Sequence[FlowClass], capacity: Sequence[float], *, compiled: bool | None = False) -> RateCache:
    return RateCache(wiring=wiring(flow_classes, capacity), compiled=compiled)


def change(rates: RateCache, counts: dict[int, int]) -> dict[int, float]:
    """Change counts of flow classes of one component and return the new rates."""
    part = rates.component(rates.wiring.components.item(next(iter(counts))))
    found = rates.change(part, tuple(counts.items()))
    return {int(number): float(rate) for number, rate in zip(found.flows, found.rates, strict=True)}


def test_only_new_rates_are_returned() -> None:
    rates = made([flow_class([0]), flow_class([0, 1]), flow_class([1])], [2.0, 11.0])
    assert change(rates, {0: 1, 1: 1, 2: 1}) == {0: 1.0, 1: 1.0, 2: 10.0}

    assert change(rates, {2: 2}) == {2: 5.0}
    assert change(rates, {2: 0}) == {}


def test_a_flow_class_that_was_asked_about_is_returned_even_with_its_old_rate() -> None:
    rates = made([flow_class([0], cap=1.0)], [8.0])
    change(rates, {0: 1})

    assert change(rates, {0: 2}) == {0: 1.0}


def test_a_state_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[object] = []
    real = module.progressive_filling
    monkeypatch.setattr(module, "progressive_filling", lambda rows, capacity: solved.append(rows) or real(rows, capacity))
    rates = made([flow_class([0]), flow_class([0])], [8.0])

    for _ in range(5):
        change(rates, {0: 1})
        change(rates, {1: 1})
        change(rates, {0: 0, 1: 0})

    assert len(solved) == 2  # one, both


def test_solutions_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_KEPT", 20)
    rates = made([flow_class([0])], [8.0])

    for count in range(1, 14):
        rates.solve(((0, count),))

    # Each is one level, and itself.
    assert list(rates._groups) == [((0, 11),), ((0, 12),), ((0, 13),)]


def test_a_change_that_came_before_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = made([flow_class([0]), flow_class([0])], [8.0])
    ways = [{0: 1}, {1: 1}, {0: 0, 1: 0}]
    first = [change(rates, way) for way in ways]
    monkeypatch.setattr(RateCache, "_regrouped", None)

    assert [change(rates, way) for way in ways] == first
    assert rates.component(0).state() == ()


def test_steps_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_KEPT", 12)
    rates = made([flow_class([0]), flow_class([0])], [8.0])

    for count in range(1, 9):
        assert change(rates, {0: count}) == {0: 8.0 / count}

    assert rates._n_kept <= 12
    assert len(rates._kept) <= 6


def test_how_many_flow_classes_are_few_can_be_said() -> None:
    flow_classes, capacity = [flow_class([0, number + 1]) for number in range(2 * FEW)], [2.0 * FEW, *([1000.0] * 2 * FEW)]
    rates = RateCache(wiring=wiring(flow_classes, capacity), compiled=False, few=2 * FEW)

    assert set(change(rates, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}
    assert not rates.component(0).many
    assert len(rates._groups) == 1


def test_states_of_many_flow_classes_are_not_kept() -> None:
    rates = made([flow_class([0])] + [flow_class([0, link + 1]) for link in range(FEW)], [8.0] * (FEW + 1))

    rates.solve(tuple((number, 1) for number in range(FEW + 1)))

    assert len(rates._groups) == 0


def many(n_flow_classes: int, *, compiled: bool | None = False) -> RateCache:
    """Return flow classes on a link class of their own each, and all on one that is shared."""
    return made(
        [flow_class([0, number + 1]) for number in range(n_flow_classes)],
        [float(n_flow_classes), *([1e6] * n_flow_classes)],
        compiled=compiled,
    )


def test_many_flow_classes_are_followed_instead_of_solved_anew() -> None:
    rates = many(2 * FEW)

    assert set(change(rates, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}
    left = change(rates, {0: 0})

    assert set(left) == set(range(1, 2 * FEW))
    assert list(left.values()) == pytest.approx([2 * FEW / (2 * FEW - 1)] * (2 * FEW - 1), rel=1e-12)
    assert rates._following is not None
    assert rates._following.table.n_looks[0] == 1


def test_a_part_that_went_idle_begins_with_few_again() -> None:
    rates = many(2 * FEW)
    change(rates, dict.fromkeys(range(2 * FEW), 1))

    assert change(rates, dict.fromkeys(range(2 * FEW), 0)) == {}
    assert change(rates, {3: 1}) == {3: 64.0}
    assert not rates.component(0).many
    assert set(change(rates, dict.fromkeys(range(2 * FEW), 1)).values()) == {1.0}


def test_many_flow_classes_may_leave_one_by_one() -> None:
    rates = many(2 * FEW)
    change(rates, dict.fromkeys(range(2 * FEW), 1))

    for number in range(2 * FEW - 1):
        change(rates, {number: 0})

    assert rates.component(0).counts == {2 * FEW - 1: 1}
    assert change(rates, {2 * FEW - 1: 2}) == pytest.approx({2 * FEW - 1: FEW}, rel=1e-12)


def test_a_change_that_reaches_too_far_is_filled_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    rates = many(2 * FEW)
    change(rates, dict.fromkeys(range(2 * FEW), 1))

    left = change(rates, {0: 0})

    assert list(left.values()) == pytest.approx([2 * FEW / (2 * FEW - 1)] * (2 * FEW - 1), rel=1e-12)


def test_components_do_not_hear_of_each_other() -> None:
    rates = made([flow_class([0]), flow_class([1])], [8.0, 4.0])

    assert change(rates, {0: 1}) == {0: 8.0}
    assert change(rates, {1: 1}) == {1: 4.0}
    assert rates.component(0).state() == ((0, 1),)


@needs_numba
def test_the_solver_is_compiled_after_a_while_in_the_midst_of_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "COMPILE_AFTER", 3)
    monkeypatch.setattr(following, "compiled_solver", cache(following.compiled_solver.__wrapped__))
    # Twice the same part of the network, side by side.
    n = 2 * FEW
    flows = [flow_class([first, first + 1 + number]) for first in (0, n + 1) for number in range(n)]
    interpreted, compiled = (made(flows, [float(n), *([1000.0] * n)] * 2, compiled=way) for way in (False, None))
    for first in (0, n):
        for one in (interpreted, compiled):
            change(one, dict.fromkeys(range(first, first + n), 1))

    ways: list[bool] = []
    for number in (0, 1, 2, 3, n, 4):
        assert change(compiled, {number: 0}) == pytest.approx(change(interpreted, {number: 0}), rel=1e-12)
        assert compiled._following is not None
        ways.append(compiled._following.is_compiled)

    assert ways == [False] * 3 + [True] * 3


@needs_numba
def test_without_a_folder_for_machine_code_the_solver_is_compiled_all_the_same(tmp_path: Path) -> None:
    code = (
        "import numba\n"
        "real = numba.njit\n"
        "def njit(*args, cache=False):\n"
        "    if cache:\n"
        "        raise RuntimeError('cannot cache function: no locator available')\n"
        "    return real(*args)\n"
        "numba.njit = njit\n"
        "from clustersim.network.following import compiled_solver\n"
        "print(type(compiled_solver().settle).__name__)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["CPUDispatcher"]


def test_numba_is_not_loaded_by_those_who_do_not_need_it() -> None:
    code = (
        "import sys\n"
        "from clustersim.network.flow_times import Flow, Pipe, finish_times\n"
        "finish_times([Pipe(bandwidth_bytes_per_s=1.0, latency_s=0.0)], [Flow(route=(0,), size_bytes=1.0, start_s=0.0)])\n"
        "print('numba' in sys.modules)\n"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False"]


def test_who_has_no_numba_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "find_spec", lambda name: None)

    assert not numba_is_installed()
