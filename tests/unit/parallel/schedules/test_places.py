from __future__ import annotations

import pytest

from clustersim.parallel.schedules.places import Places, bidirectional, looped, v_shaped


@pytest.mark.parametrize("places", [looped(4, 1), looped(4, 3), v_shaped(4, 2), bidirectional(4, 1)])
def test_every_chunk_of_every_stage_is_one_stop(places: Places) -> None:
    stops = [stop for route in places.routes for stop in route]

    assert len(set(stops)) == len(stops) == places.n_parts * places.n_copies
    assert places.n_stages == 4


def test_a_stage_lists_its_chunks_with_their_parts_and_ways() -> None:
    assert list(looped(4, 2).stops(1)) == [(0, 1, 0), (1, 5, 0)]
    assert list(v_shaped(4, 2).stops(1)) == [(0, 1, 0), (1, 6, 0)]
    assert list(bidirectional(4, 1).stops(1)) == [(0, 1, 0), (1, 2, 1)]


def test_neighbours_follow_the_way_of_a_micro_batch() -> None:
    neighbours = v_shaped(3, 2).neighbours()

    assert neighbours[0, 0] == (None, (1, 0))
    assert neighbours[2, 0] == ((1, 0), (2, 1))
    assert neighbours[0, 1] == ((1, 1), None)


def test_copies_of_the_model_share_the_micro_batches() -> None:
    assert looped(4, 1).micro_batches(0, 6) == range(6)
    assert [bidirectional(4, 1).micro_batches(way, 6) for way in (0, 1)] == [range(3), range(3, 6)]
