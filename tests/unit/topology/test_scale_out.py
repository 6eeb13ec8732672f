from __future__ import annotations

import numpy as np

from clustersim.topology.cluster import pair_keys
from clustersim.topology.scale_out import narrowest, shares
from tests.unit.topology.factories import ranks


def test_the_least_share_along_a_path_is_what_is_left_of_it() -> None:
    left = np.array([1.0, 0.5, 0.0])

    assert narrowest(np.array([[0, 1], [0, -1], [-1, -1], [1, 2]]), left).tolist() == [0.5, 1.0, 0.0, 0.0]


def test_spread_flows_are_divided_in_proportion() -> None:
    assert shares(np.array([[1.0, 0.5, 0.5], [0.0, 0.0, 0.0]]), None, 0).tolist() == [[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]]


def test_a_hashed_flow_takes_one_path_that_is_not_cut() -> None:
    found = shares(np.tile([0.0, 0.2, 0.7], (50, 1)), pair_keys(0, np.arange(50), np.arange(50)), 0)

    assert (found.sum(axis=1) == 1.0).all()
    assert found[:, 0].sum() == 0.0
    assert (found[:, 1:].sum(axis=0) > 0.0).all()
    assert shares(np.zeros((1, 2)), pair_keys(0, ranks(1), ranks(2)), 0).tolist() == [[0.0, 0.0]]
