from __future__ import annotations

from clustersim.parallel.division import Mesh, place
from clustersim.parallel.training_plan import Dimension
from tests.rows import rows
from tests.unit.parallel.factories import make_plan


def mesh(*placement: Dimension, dp: int = 2, tp: int = 2, pp: int = 2) -> Mesh:
    order = {"placement": placement} if placement else {}
    return place(make_plan(dp=dp, tp=tp, pp=pp, **order).strategy)


def test_by_default_tensor_parallel_ranks_are_neighbours_and_stages_farthest() -> None:
    placed = mesh()

    assert rows(placed.groups("tp", 0)) == ((0, 1), (2, 3))
    assert rows(placed.groups("dp", 0)) == ((0, 2), (1, 3))
    assert placed.stage_ranks(1).tolist() == [4, 5, 6, 7]


def test_the_place_of_expert_parallelism_does_not_matter() -> None:
    first, last = mesh("ep", "tp", "cp", "dp", "pp"), mesh("tp", "cp", "dp", "pp", "ep")

    assert first.ranks.tolist() == last.ranks.tolist() == mesh().ranks.tolist()
