from __future__ import annotations

from clustersim.parallel.shard import numerics
from tests.unit.parallel.factories import make_plan
from tests.unit.workloads.kinds.factories import NUMERICS


def test_the_shape_of_the_factory_is_that_of_an_undivided_plan() -> None:
    assert numerics(make_plan().training) == NUMERICS
