"""Groups of ranks that work on the layers of one stage."""

from __future__ import annotations

from clustersim.parallel.division import divided, place
from clustersim.parallel.groups import parallel_groups
from tests.unit.parallel.factories import make_plan


def test_a_replica_is_its_tensor_and_context_parallel_ranks_together() -> None:
    plan = make_plan(tp=2, cp=2, dp=2, global_batch_size=2)
    groups = parallel_groups(plan.model, plan.strategy, divided(place(plan.strategy)), stage=0, part=0)

    assert groups.tp.members.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups.cp.members.tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups.replica.members.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
