"""Every rank has its place on the mesh, in whatever order the dimensions vary."""

from __future__ import annotations

from itertools import permutations
from typing import Literal

import pytest

from clustersim.parallel.division import place
from clustersim.parallel.training_plan import Dimension
from tests.unit.parallel.factories import STRATEGY

DIMENSIONS: tuple[Dimension, ...] = ("tp", "cp", "ep", "dp", "pp")
PLACEMENTS = list(permutations(DIMENSIONS))[::17]
"""Each dimension stands in each place."""


@pytest.mark.parametrize("placement", PLACEMENTS, ids="-".join)
def test_every_rank_is_once_in_a_group_of_each_dimension_for_every_placement(placement: tuple[Dimension, ...]) -> None:
    mesh = place(STRATEGY.changed(dp=4, tp=2, pp=3, cp=5, placement=placement))
    everyone = list(range(4 * 2 * 3 * 5))

    assert sorted(rank for stage in range(3) for rank in mesh.stage_ranks(stage).tolist()) == everyone
    dimensions: tuple[tuple[Literal["tp", "dp", "cp"], int], ...] = (("tp", 2), ("dp", 4), ("cp", 5))
    for dimension, size in dimensions:
        groups = [group for stage in range(3) for group in mesh.groups(dimension, stage)]
        assert sorted(rank for group in groups for rank in group) == everyone
        assert {len(group) for group in groups} == {size}


@pytest.mark.parametrize("placement", PLACEMENTS, ids="-".join)
def test_ranks_of_a_group_differ_in_their_own_dimension_alone(placement: tuple[Dimension, ...]) -> None:
    sizes = {"dp": 4, "tp": 2, "pp": 3, "cp": 5, "ep": 1}
    mesh = place(STRATEGY.changed(dp=4, tp=2, pp=3, cp=5, placement=placement))

    def coordinates(rank: int) -> dict[str, int]:
        out: dict[str, int] = {}
        for dimension in placement:
            rank, out[dimension] = divmod(rank, sizes[dimension])
        return out

    for stage in range(3):
        for group in mesh.groups("dp", stage):
            places = [coordinates(rank) for rank in group]
            assert [place_["dp"] for place_ in places] == [0, 1, 2, 3]
            assert all({**place_, "dp": 0} == {**places[0], "dp": 0} for place_ in places)
            assert places[0]["pp"] == stage
