from __future__ import annotations

import pytest

from clustersim.collectives.shifts import aggregated_tree_shifts, bruck_shifts, shift_exchanges, shift_schedule


def test_brucks_distances_grow_with_what_is_sent() -> None:
    assert [(shift.distance, len(shift.offsets)) for shift in bruck_shifts(11)] == [(1, 1), (2, 2), (4, 4), (8, 3)]


def test_aggregated_trees_send_little_far_and_much_near() -> None:
    shifts = aggregated_tree_shifts(11)

    assert [(shift.distance, shift.offsets.tolist()) for shift in shifts] == [(8, [0]), (4, [0]), (2, [0, 4, 8]), (1, [0, 2, 4, 6, 8])]


@pytest.mark.parametrize("n", [*range(2, 40), 1000, 1023, 1024])
def test_every_rank_gets_every_other_part_once(n: int) -> None:
    for shifts in (bruck_shifts(n), aggregated_tree_shifts(n)):
        reached = sorted(offset + shift.distance for shift in shifts for offset in shift.offsets.tolist())

        assert reached == list(range(1, n))
        assert len(shifts) == (n - 1).bit_length()


def test_a_reduce_scatter_goes_the_ways_of_the_all_gather_back() -> None:
    there = shift_exchanges("all_gather", bruck_shifts(5), 5)

    back = shift_exchanges("reduce_scatter", bruck_shifts(5), 5)

    for forward, backward in zip(there, reversed(back), strict=True):
        assert forward.n_parts == backward.n_parts
        assert forward.sources.tolist() == backward.destinations.tolist()
        assert forward.destinations.tolist() == backward.sources.tolist()


def test_messages_of_a_reduce_scatter_are_added() -> None:
    assert all(step.reduces for step in shift_schedule("reduce_scatter", bruck_shifts, 5).steps)
    assert not any(step.reduces for step in shift_schedule("all_gather", bruck_shifts, 5).steps)
