from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.topology.factories import make_node, route


def test_a_rank_reaches_itself_over_nothing() -> None:
    assert route(build_cluster(make_node(), 4), 9, 9) == ()


@pytest.mark.parametrize(("source", "destination", "stranger"), [(0, 36, 36), (-1, 0, -1)])
def test_a_rank_outside_is_refused(source: int, destination: int, stranger: int) -> None:
    with pytest.raises(DomainError, match=f"rank {stranger} is outside the cluster; its ranks are 0 to 31"):
        route(build_cluster(make_node(), 4), source, destination)


def test_tiers_are_in_the_order_in_which_a_route_climbs() -> None:
    assert TIERS == ("nvlink", "pcie", "socket", "nic", "leaf", "spine", "memory", "storage")
