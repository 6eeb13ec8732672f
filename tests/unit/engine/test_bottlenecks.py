from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.collective_flows import crossings
from clustersim.engine.bottlenecks import implied_links
from clustersim.hardware.models import FabricTopology
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_fabric, make_node, ranks


def wired(oversubscription: float = 1.0) -> Cluster:
    """Return two leaves of two nodes each."""
    fabric = make_fabric("leaf_spine", nodes_per_leaf=2, oversubscription=oversubscription)
    return build_cluster(make_node(n_accelerators=2, n_nics=2), 4, fabric)


def sends(cluster: Cluster, *pairs: tuple[int, int]) -> Crossings:
    sources, destinations = (ranks(*(pair[end] for pair in pairs)) for end in (0, 1))
    return crossings(cluster.routes(sources, destinations), sources, np.ones(len(pairs)))


def implied_names(cluster: Cluster, flows: Crossings, *opaque: int) -> set[str]:
    found = implied_links([flows], ranks(*opaque), cluster, cluster.bandwidth_bytes_per_s)
    return {cluster.links[int(link)].name for link in np.flatnonzero(found)}


ACROSS = ((0, 4), (1, 5), (2, 6), (3, 7))


def test_a_leaf_with_room_for_all_its_adapters_is_never_what_is_full() -> None:
    cluster = wired()

    found = implied_names(cluster, sends(cluster, *ACROSS))

    assert any(name.startswith("leaf0/up") for name in found)
    assert any(name.startswith("leaf1/down") for name in found)
    assert not any("nic" in name or "gpu" in name for name in found)


def test_an_oversubscribed_leaf_may_be() -> None:
    cluster = wired(oversubscription=2.0)

    # All that comes down has gone up before, on a link of the same capacity.
    assert implied_names(cluster, sends(cluster, *ACROSS)) == {"leaf1/down"}


def test_a_leaf_that_something_else_crosses_may_be() -> None:
    cluster = wired()
    flows = sends(cluster, *ACROSS)
    up = [number for number, link in enumerate(cluster.links) if link.name.startswith("leaf0/up")]

    found = implied_names(cluster, flows, *up)

    assert not any(name.startswith("leaf0/up") for name in found)
    assert any(name.startswith("leaf1/down") for name in found)


def test_a_flow_that_carries_more_than_it_brought_implies_nothing() -> None:
    cluster = wired()
    flows = sends(cluster, *ACROSS)
    grown = flows.amounts.copy()
    fabric = np.array([link.tier == "leaf" for link in cluster.links])[flows.link_ids]
    grown[fabric] *= 2.0
    more = Crossings(ranks=flows.ranks, starts=flows.starts, link_ids=flows.link_ids, amounts=grown, latency_s=flows.latency_s)

    assert implied_names(cluster, more) == {"leaf1/down"}


@pytest.mark.parametrize("n_flows", [1, 2])
def test_of_links_that_would_imply_each_other_one_stays(n_flows: int) -> None:
    cluster = wired()
    leaf = np.flatnonzero([link.tier == "leaf" for link in cluster.links])[:2]
    here, there = (int(link) for link in leaf)
    # One flow goes from the first to the second, the other back: each comes before the other.
    routes = [here, there, there, here][: 2 * n_flows]
    flows = Crossings(
        ranks=ranks(*range(n_flows)),
        starts=2 * np.arange(n_flows + 1),
        link_ids=ranks(*routes),
        amounts=np.ones(2 * n_flows),
        latency_s=np.zeros(n_flows),
    )

    found = implied_links([flows], ranks(), cluster, np.ones(len(cluster.links)))

    assert int(found.sum()) == (1 if n_flows == 1 else 0)


@pytest.mark.parametrize("topology", ["rail_optimized", "leaf_spine"])
@pytest.mark.parametrize("oversubscription", [1.0, 2.0])
@pytest.mark.parametrize("core_oversubscription", [1.0, 2.0])
def test_flows_of_the_lowest_ranks_imply_what_all_do(
    topology: FabricTopology, oversubscription: float, core_oversubscription: float
) -> None:
    fabric = make_fabric(
        topology, nodes_per_leaf=2, leaves_per_pod=4, oversubscription=oversubscription, core_oversubscription=core_oversubscription
    )
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4), 24, fabric)
    rotation = cluster.rotation(1)
    assert rotation is not None
    everywhere = [(rank, (rank + 4 * distance) % 96) for distance in (1, 2, 7) for rank in range(96)]
    lowest = [pair for pair in everywhere if rotation.lowest_rank[pair[0]] == pair[0]]
    whole = implied_links([sends(cluster, *everywhere)], ranks(), cluster, cluster.bandwidth_bytes_per_s)

    found = implied_links([sends(cluster, *lowest)], ranks(), cluster, cluster.bandwidth_bytes_per_s, rotation)

    stays = rotation.lowest_link == np.arange(len(rotation.lowest_link))
    assert found[stays].tolist() == whole[stays].tolist()
    assert whole.any() or oversubscription > 1.0
