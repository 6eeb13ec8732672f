from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_node, ranks, route


def test_a_wired_cluster_is_what_the_floors_above_ask_for() -> None:
    cluster: Cluster = build_cluster(make_node(), 4)

    assert (cluster.n_nodes, cluster.n_ranks) == (4, 32)
    assert len(cluster.links) == len(cluster.bandwidth_bytes_per_s) == len(cluster.latency_s) == len(cluster.tier_index)


def test_a_route_for_people_is_the_route_of_the_arrays() -> None:
    cluster = build_cluster(make_node(), 4)

    ids = cluster.routes(ranks(3), ranks(25)).link_ids

    assert route(cluster, 3, 25) == tuple(cluster.links[int(link_id)] for link_id in ids)


def test_a_rank_reaches_itself_over_nothing() -> None:
    assert route(build_cluster(make_node(), 4), 9, 9) == ()


@pytest.mark.parametrize(("source", "destination", "stranger"), [(0, 36, 36), (-1, 0, -1)])
def test_a_rank_outside_is_refused(source: int, destination: int, stranger: int) -> None:
    with pytest.raises(DomainError, match=f"rank {stranger} is outside the cluster; its ranks are 0 to 31"):
        route(build_cluster(make_node(), 4), source, destination)


def test_tiers_are_in_the_order_in_which_a_route_climbs() -> None:
    assert TIERS == ("nvlink", "pcie", "socket", "nic", "leaf", "spine", "memory", "storage")
