"""In which order the dimensions lie on the ranks where a scenario leaves that open."""

from __future__ import annotations

import pytest

from clustersim.config.planning import FAR_STAGES, NEAR_STAGES
from clustersim.documents.spots import Data
from clustersim.parallel.mesh import place
from clustersim.parallel.sharding_groups import expert_grid
from tests.unit.config.samples import built
from tests.unit.config.test_expert_checks import MIXTURE
from tests.unit.parallel.factories import make_plan


@pytest.mark.parametrize(
    ("strategy", "order"),
    [({"tp": 2, "pp": 2}, NEAR_STAGES), ({"tp": 8, "pp": 2}, FAR_STAGES), ({"tp": 8, "pp": 1}, FAR_STAGES)],
)
def test_stages_are_neighbours_where_they_fit_under_a_leaf(strategy: dict[str, Data], order: tuple[str, ...]) -> None:
    one_node: Data = {"node": "dgx-a100-40g", "nodes": 2, "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 1}}
    found = built(cluster=one_node, strategy={**strategy, "placement": "auto"})

    assert found.plan.strategy.placement == order
    assert "chosen_placement" in {flag.code for flag in found.flags}


def test_a_placement_that_is_written_is_kept() -> None:
    assert built(strategy={"tp": 2, "placement": ["dp", "tp", "cp", "ep", "pp"]}).plan.strategy.placement == ("dp", "tp", "cp", "ep", "pp")


def test_replicas_that_hold_all_experts_stay_together_before_the_stages() -> None:
    strategy = built(model=MIXTURE, strategy={"pp": 2, "ep": 4, "placement": "auto"}).plan.strategy
    mesh = place(strategy)

    assert strategy.placement == NEAR_STAGES
    assert expert_grid(strategy, mesh, 0)[0].reshape(-1).tolist() == [0, 1, 2, 3]
    assert expert_grid(strategy, mesh, 1)[0].reshape(-1).tolist() == [4, 5, 6, 7]


def test_tensor_parallel_ranks_are_nearest_in_either_order() -> None:
    for order in (NEAR_STAGES, FAR_STAGES):
        strategy = make_plan(dp=4, tp=2, pp=2, placement=order).strategy
        assert place(strategy).groups("tp", 0)[0].tolist() == [0, 1]
