"""A change is followed as far as it reaches, in every way of doing it."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.filling import progressive_filling
from tests.unit.network.factories import kind
from tests.unit.network.tables import WAYS, following, levels, made, out_of_balance, random_wiring, settle


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_kind_enters_an_idle_network_at_its_narrowest_cell(way: str) -> None:
    found = made(way, [kind([0, 1])], [8.0, 5.0])

    assert settle(found, {0: 1.0})
    assert levels(found) == [5.0]
    assert out_of_balance(found) == []


def test_a_kind_that_enters_takes_from_those_on_its_cells(way: str) -> None:
    found = made(way, [kind([0]), kind([0, 1]), kind([1])], [10.0, 4.0])

    settle(found, {0: 1.0})
    settle(found, {1: 1.0, 2: 1.0})

    assert levels(found) == [8.0, 2.0, 2.0]
    assert out_of_balance(found) == []


def test_what_departs_leaves_its_share_to_those_at_its_level_and_above(way: str) -> None:
    found = made(way, [kind([0]), kind([0]), kind([0, 1]), kind([1])], [6.0, 10.0])
    settle(found, dict.fromkeys(range(4), 1.0))
    assert levels(found) == [2.0, 2.0, 2.0, 8.0]

    settle(found, {0: 0.0})

    assert levels(found) == [0.0, 3.0, 3.0, 7.0]
    assert out_of_balance(found) == []


def test_what_has_a_lower_level_than_a_departing_flow_is_not_looked_at(way: str) -> None:
    # Kinds 0 and 1 share a narrow cell, 1 and 2 a wide one.
    found = made(way, [kind([0]), kind([0, 1]), kind([1]), kind([1])], [2.0, 11.0])
    settle(found, dict.fromkeys(range(4), 1.0))
    assert levels(found) == [1.0, 1.0, 5.0, 5.0]
    looks = found.n_looks

    settle(found, {3: 0.0})

    assert found.changes([])[0].tolist() == [2]
    assert found.n_looks - looks == 1
    assert levels(found) == [1.0, 1.0, 10.0, 0.0]


def test_another_component_is_not_looked_at(way: str) -> None:
    found = made(way, [kind([0]), kind([0]), kind([1]), kind([1])], [2.0, 4.0])
    settle(found, dict.fromkeys(range(4), 1.0))

    settle(found, {0: 0.0})

    assert found.changes([])[0].tolist() == [1]


def test_more_flows_of_a_kind_weigh_more(way: str) -> None:
    found = made(way, [kind([0]), kind([0])], [8.0])
    settle(found, {0: 1.0, 1: 1.0})

    settle(found, {1: 3.0})
    assert levels(found) == [2.0, 2.0]
    settle(found, {1: 1.0})
    assert levels(found) == [4.0, 4.0]
    assert out_of_balance(found) == []


def test_a_kind_at_its_limit_stays_there_until_a_cell_holds_it_back(way: str) -> None:
    found = made(way, [kind([0], cap=3.0), kind([0]), kind([0])], [8.0])

    settle(found, {0: 1.0})
    assert levels(found)[0] == 3.0
    settle(found, {1: 1.0})
    assert levels(found)[:2] == [3.0, 5.0]
    settle(found, {2: 2.0})
    assert levels(found) == [2.0, 2.0, 2.0]
    settle(found, {2: 0.0})
    assert levels(found)[:2] == [3.0, 5.0]
    assert out_of_balance(found) == []


def test_a_kind_that_neither_was_nor_is_in_flight_changes_nothing(way: str) -> None:
    found = made(way, [kind([0]), kind([0])], [8.0])
    settle(found, {0: 1.0})

    assert settle(found, {1: 0.0})
    assert found.changes([])[0].tolist() == []
    assert levels(found) == [8.0, 0.0]
    assert out_of_balance(found) == []


def test_a_cell_without_capacity_stops_its_kinds(way: str) -> None:
    found = made(way, [kind([0, 1]), kind([1])], [0.0, 4.0])

    settle(found, {0: 1.0, 1: 1.0})

    assert levels(found) == [0.0, 4.0]


def test_a_change_that_goes_too_far_is_given_up(way: str) -> None:
    # A chain of cells, each wider than the last: taking the first kind off moves all of them, one after the other.
    n_kinds = 20
    found = made(way, [kind([0]), *(kind([link, link + 1]) for link in range(n_kinds))], [2.0**link for link in range(n_kinds + 1)])
    settle(found, dict.fromkeys(range(n_kinds + 1), 1.0))

    assert not settle(found, {0: 0.0}, patience=3)


def test_a_light_kind_is_exact_beside_heavy_ones_that_come_and_go(way: str) -> None:
    # What a cell's own kinds take at level 1 shrinks to a billionth when the heavy one leaves: what is left is counted anew.
    found = made(way, [kind([0], weight=1e6), kind([0], weight=1e-3 / 3), kind([0], weight=1e-3 / 7)], [1.0])
    settle(found, {0: 1.0, 1: 1.0, 2: 1.0})

    settle(found, {0: 0.0})

    assert levels(found)[1] == pytest.approx(1.0 / (1e-3 / 3 + 1e-3 / 7), rel=1e-13)


def test_kinds_asked_about_are_named_as_well(way: str) -> None:
    found = made(way, [kind([0]), kind([0], cap=2.0)], [8.0])
    settle(found, {0: 1.0, 1: 1.0})
    settle(found, {0: 0.0})

    kinds, new = found.changes([1])

    assert kinds.tolist() == [1]
    assert new.tolist() == [2.0]


def test_filling_from_nothing_leaves_all_in_balance(way: str) -> None:
    found = made(way, [kind([0]), kind([0, 1]), kind([1], cap=1.0)], [8.0, 4.0])
    settle(found, {0: 5.0, 2: 1.0})

    assert found.refill(np.arange(3), np.array([1, 2]), np.array([2.0, 1.0])).tolist() == [1.5, 1.0]

    assert levels(found) == [0.0, 1.5, 1.0]
    assert out_of_balance(found) == []
    # Kind 0 is gone: as a newcomer it takes its share.
    settle(found, {0: 1.0})
    assert levels(found) == [5.0, 1.5, 1.0]


def test_another_component_is_left_alone_when_one_is_filled(way: str) -> None:
    found = made(way, [kind([0]), kind([1]), kind([1])], [8.0, 4.0])
    settle(found, {0: 1.0, 1: 1.0, 2: 1.0})

    found.refill(np.array([1, 2]), np.array([2]), np.array([1.0]))

    assert levels(found) == [8.0, 0.0, 4.0]
    assert out_of_balance(found) == []


def test_a_component_can_be_emptied(way: str) -> None:
    found = made(way, [kind([0])], [8.0])
    settle(found, {0: 2.0})

    assert found.refill(np.array([0]), np.zeros(0, dtype=np.int64), np.zeros(0)).tolist() == []
    settle(found, {0: 1.0})
    assert levels(found) == [8.0]


def test_a_change_that_was_given_up_can_be_filled_from_nothing(way: str) -> None:
    n_kinds = 20
    found = made(way, [kind([0]), *(kind([link, link + 1]) for link in range(n_kinds))], [2.0**link for link in range(n_kinds + 1)])
    everything = dict.fromkeys(range(n_kinds + 1), 1.0)
    settle(found, everything)
    settle(found, {0: 0.0}, patience=3)

    rest = np.arange(1, n_kinds + 1)
    expected = found.refill(np.arange(n_kinds + 1), rest, np.ones(n_kinds)).tolist()

    assert levels(found)[1:] == expected
    assert out_of_balance(found) == []


@pytest.mark.parametrize("seed", range(25))
def test_after_every_change_the_levels_are_those_of_progressive_filling(way: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    laid = random_wiring(generator)
    n_kinds = len(laid.limits)
    found, counts = following(way, laid), np.zeros(n_kinds)

    for _ in range(30):
        changed = generator.choice(n_kinds, int(generator.integers(1, min(4, n_kinds) + 1)), replace=False)
        counts[changed] = generator.choice([0.0, 0.0, 1.0, 1.0, 3.0], len(changed))
        kinds = np.flatnonzero(counts)
        before = levels(found)
        if settle(found, {int(number): float(counts[number]) for number in changed}):
            named, new = found.changes([])
            after = dict(zip(named.tolist(), new.tolist(), strict=True))
            assert {number: after.get(number, before[number]) for number in kinds.tolist()} == {
                number: levels(found)[number] for number in kinds.tolist()
            }
        else:
            found.refill(np.arange(n_kinds), kinds, counts[kinds])

        assert out_of_balance(found) == []
        expected = progressive_filling(laid.problem(kinds, counts[kinds])[0]).levels
        assert [levels(found)[number] for number in kinds] == pytest.approx(expected.tolist(), rel=1e-11)
