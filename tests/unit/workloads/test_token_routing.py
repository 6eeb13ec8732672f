"""Spread of tokens over experts."""

from __future__ import annotations

import pytest

from clustersim.workloads.token_routing import ExpertLoad, routed


def test_a_balanced_router_gives_every_expert_as_much() -> None:
    assert routed(ExpertLoad(), 8, n_tokens=64, top_k=2, layer=3).rows == (16,) * 8


def test_what_does_not_divide_differs_by_one_row() -> None:
    rows = routed(ExpertLoad(), 8, n_tokens=33, top_k=2, layer=0).rows

    assert sum(rows) == 66
    assert max(rows) - min(rows) == 1


def test_zipf_gives_the_second_expert_half_of_the_first() -> None:
    rows = routed(ExpertLoad(kind="zipf", skew=1.0), 16, n_tokens=100_000, top_k=1, layer=0).rows

    assert rows[1] / rows[0] == pytest.approx(1 / 2, abs=1e-4)
    assert rows[3] / rows[0] == pytest.approx(1 / 4, abs=1e-4)
    assert sum(rows) == 100_000


def test_no_expert_gets_a_token_twice() -> None:
    rows = routed(ExpertLoad(kind="zipf", skew=3.0), 8, n_tokens=1000, top_k=2, layer=0).rows

    assert rows[0] == 1000
    assert sum(rows) == 2000


def test_dirichlet_is_drawn_anew_for_every_layer_and_seed() -> None:
    load, other = ExpertLoad(kind="dirichlet", seed=1), ExpertLoad(kind="dirichlet", seed=2)
    first, again, deeper, reseeded = (
        routed(each, 8, n_tokens=4096, top_k=2, layer=layer).rows for each, layer in ((load, 0), (load, 0), (load, 1), (other, 0))
    )

    assert first == again
    assert len({first, deeper, reseeded}) == 3


def test_a_high_concentration_is_almost_even() -> None:
    rows = routed(ExpertLoad(kind="dirichlet", skew=100.0), 4, n_tokens=10_000, top_k=1, layer=0).rows

    assert max(rows) < 1.3 * min(rows)


def test_a_file_gives_each_layer_its_shares() -> None:
    load = ExpertLoad(kind="file", shares=((), (0.5, 0.25, 0.25, 0.0)))

    assert routed(load, 4, n_tokens=100, top_k=1, layer=1).rows == (50, 25, 25, 0)


def test_what_is_beyond_the_capacity_is_dropped_and_counted() -> None:
    load = ExpertLoad(kind="file", shares=((0.7, 0.1, 0.1, 0.1),), capacity_factor=1.0)
    found = routed(load, 4, n_tokens=100, top_k=1, layer=0)

    assert found.rows == (25, 10, 10, 10)
    assert found.dropped == 45


def test_a_balanced_router_drops_nothing_at_a_capacity_of_the_mean() -> None:
    assert routed(ExpertLoad(capacity_factor=1.0), 8, n_tokens=33, top_k=2, layer=0).dropped == 0
