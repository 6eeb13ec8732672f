from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Routing
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.scale_out import GRAIN
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_BYTES_PER_S, all_pairs, make_fabric, make_node, named_rows

SMALL = make_node(n_accelerators=2, n_nics=2)


def torus(*dimensions: int, routing: Routing = "adaptive", changes: tuple[LinkChange, ...] = ()) -> Cluster:
    return build_cluster(SMALL, int(np.prod(dimensions)), make_fabric("torus", dimensions=dimensions, routing=routing), changes=changes)


def across(cluster: Cluster, source: int, destination: int) -> list[tuple[str, float]]:
    """Return the links of the torus between the first accelerators of two nodes."""
    return [(name, share) for name, share in named_rows(cluster, 2 * source, 2 * destination) if name.startswith("router")]


def test_a_router_has_a_link_each_way_along_each_dimension_and_they_share_what_its_adapters_carry() -> None:
    cluster = torus(4, 3, 2)
    links = [link for link in cluster.links if link.tier == "leaf"]

    assert len(links) == 24 * 6
    assert {link.bandwidth_bytes_per_s for link in links} == {2 * NIC_BYTES_PER_S / 6}
    assert {link.latency_s for link in links} == {CABLE_S + LEAF_S}


def test_the_bandwidth_of_a_link_can_be_given() -> None:
    fabric = replace(make_fabric("torus", dimensions=(4,)), link_bandwidth_bytes_per_s=5e9)

    assert {link.bandwidth_bytes_per_s for link in build_cluster(SMALL, 4, fabric).links if link.tier == "leaf"} == {5e9}


def test_a_route_goes_along_one_dimension_after_the_other_in_the_shorter_direction() -> None:
    cluster = torus(5, 5, 5)

    names = [name for name, _ in across(cluster, 0, 2 + 5 * 4 + 25 * 3)]

    assert names == ["router0/x+", "router1/x+", "router2/y-", "router22/z-", "router122/z-"]


def test_each_link_knows_its_ends() -> None:
    cluster = torus(4, 3)
    ends = {cluster.link_name(link): cluster.ends(link) for link in range(len(cluster.links))}

    assert ends["router3/x+"] == ("router3", "router0")
    assert ends["router0/x-"] == ("router0", "router3")
    assert ends["router10/y+"] == ("router10", "router2")
    assert ends["node7/nic1/tx"][1] == "router7"


def test_where_both_directions_are_equally_long_traffic_is_spread_over_both() -> None:
    assert across(torus(4, 3), 0, 2) == [("router0/x+", 0.5), ("router1/x+", 0.5), ("router0/x-", 0.5), ("router3/x-", 0.5)]


def test_two_routers_are_joined_twice_and_both_links_are_used() -> None:
    assert across(torus(2), 0, 1) == [("router0/x+", 0.5), ("router0/x-", 0.5)]


def test_hashed_flows_take_one_of_both_directions_and_about_half_take_each() -> None:
    cluster = torus(4, 4, routing="ecmp")
    sources, destinations = all_pairs(cluster.n_ranks)
    half = (destinations // 2 - sources // 2) % 4 == 2
    half &= (destinations // 8) == (sources // 8)

    routes = cluster.routes(sources[half], destinations[half])

    directions = [cluster.link_name(int(link))[-1] for link in routes.link_ids if "/x" in cluster.link_name(int(link))]
    forward = directions.count("+") / len(directions)
    assert len(directions) == 2 * half.sum()
    assert abs(forward - 0.5) < 5 * 0.5 / np.sqrt(half.sum())


def test_spreading_is_in_proportion_to_what_both_directions_carry() -> None:
    cluster = torus(4, changes=(LinkChange(between=("router1", "router2"), fraction=0.25),))

    ways = across(cluster, 0, 2)
    assert [name for name, _ in ways] == ["router0/x+", "router1/x+", "router0/x-", "router3/x-"]
    assert [share for _, share in ways] == pytest.approx([0.2, 0.2, 0.8, 0.8], abs=GRAIN)


def test_around_a_link_that_is_down_a_flow_takes_the_shortest_way_left() -> None:
    cluster = torus(5, 3, changes=(LinkChange(between=("router0", "router1"), state="down"),))

    assert len(across(cluster, 0, 1)) == 3  # over a neighbouring row
    assert across(cluster, 5, 6) == [("router5/x+", 1.0)]


def test_a_ring_with_one_link_down_is_a_line() -> None:
    cluster = torus(5, changes=(LinkChange(between=("router0", "router4"), state="down"),))

    assert [name for name, _ in across(cluster, 4, 0)] == ["router4/x-", "router3/x-", "router2/x-", "router1/x-"]


def test_a_ring_with_two_links_down_is_cut_in_two() -> None:
    with pytest.raises(DomainError, match="ranks 2-5 cannot reach ranks 0-1, 6-9"):
        torus(5, changes=tuple(LinkChange(between=between, state="down") for between in (("router0", "router1"), ("router2", "router3"))))


def test_dimensions_must_hold_all_nodes_and_servers() -> None:
    with pytest.raises(DomainError, match="2 x 3 = 6 places of a torus are not 8, as many as there are nodes and servers"):
        build_cluster(SMALL, 8, make_fabric("torus", dimensions=(2, 3)))
