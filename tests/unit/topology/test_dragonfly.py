from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Routing
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.scale_out import GRAIN
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import NIC_BYTES_PER_S, all_pairs, make_fabric, make_node, named_rows

SMALL = make_node(n_accelerators=2, n_nics=2)


def dragonfly(
    n_nodes: int, per_group: int = 4, global_links: int = 2, *, routing: Routing = "adaptive", changes: tuple[LinkChange, ...] = ()
) -> Cluster:
    fabric = make_fabric("dragonfly", nodes_per_leaf=2, leaves_per_group=per_group, global_links=global_links, routing=routing)
    return build_cluster(SMALL, n_nodes, fabric, changes=changes)


def across(cluster: Cluster, source: int, destination: int) -> list[tuple[str, float]]:
    """Return the links of the dragonfly between the first accelerators of two nodes."""
    return [(name, share) for name, share in named_rows(cluster, 2 * source, 2 * destination) if name.startswith("group")]


def test_all_routers_of_a_group_are_joined_and_each_group_with_every_other() -> None:
    cluster = dragonfly(9 * 8)
    counts = np.bincount(cluster.tier_index, minlength=len(TIERS))

    assert cluster.n_leaves == 36
    assert counts[TIERS.index("leaf")] == 9 * 4 * 3
    assert counts[TIERS.index("spine")] == 9 * 8
    assert {link.bandwidth_bytes_per_s for link in cluster.links if link.tier in ("leaf", "spine")} == {NIC_BYTES_PER_S}


def test_fewer_groups_share_the_links_between_them() -> None:
    cluster = dragonfly(3 * 8)
    between = [cluster.ends(link) for link in range(len(cluster.links)) if TIERS[cluster.tier_index[link]] == "spine"]

    pairs = [(tail.split("/")[0], head.split("/")[0]) for tail, head in between]

    assert {pair: pairs.count(pair) for pair in pairs} == {(f"group{a}", f"group{b}"): 4 for a in range(3) for b in range(3) if a != b}


def test_every_link_has_its_way_back_and_no_router_more_than_its_links() -> None:
    cluster = dragonfly(5 * 8)
    ends = [cluster.ends(link) for link in range(len(cluster.links)) if TIERS[cluster.tier_index[link]] == "spine"]

    assert sorted(ends) == sorted((head, tail) for tail, head in ends)
    assert max([tail for tail, _ in ends].count(f"group0/router{router}") for router in range(4)) <= 2


def test_the_last_group_is_bought_in_full() -> None:
    assert dragonfly(9).n_leaves == 8


def test_one_group_has_no_links_to_others() -> None:
    assert {link.tier for link in dragonfly(8).links} & {"leaf", "spine"} == {"leaf"}


def test_inside_a_group_a_route_takes_one_link() -> None:
    assert across(dragonfly(72), 0, 7) == [("group0/router0/to3", 1.0)]


def test_between_groups_a_route_takes_one_link_and_up_to_one_inside_each() -> None:
    cluster = dragonfly(72)

    assert [name for name, _ in across(cluster, 0, 8)] == ["group0/router0/global0", "group1/router3/to0"]
    assert [name for name, _ in across(cluster, 2, 10)] == ["group0/router1/to0", "group0/router0/global0", "group1/router3/to1"]
    assert [name for name, _ in across(cluster, 0, 14)] == ["group0/router0/global0"]


def test_of_the_links_between_two_groups_those_that_are_nearest_share_the_traffic() -> None:
    cluster = dragonfly(3 * 8)

    # Four links lead from group 0 to group 1: two from each of the first two routers, to the last two.
    assert across(cluster, 4, 8) == [
        step
        for first, port, last in (("to0", "router0/global0", "router2"), ("to0", "router0/global1", "router2"))
        for step in ((f"group0/router2/{first}", 0.25), (f"group0/{port}", 0.25), (f"group1/{last}/to0", 0.25))
    ] + [
        step
        for port in ("router1/global0", "router1/global1")
        for step in (("group0/router2/to1", 0.25), (f"group0/{port}", 0.25), ("group1/router3/to0", 0.25))
    ]
    assert across(cluster, 0, 12) == [("group0/router0/global0", 0.5), ("group0/router0/global1", 0.5)]


def test_hashed_flows_take_one_of_the_shortest_paths() -> None:
    spread, hashed = dragonfly(24), dragonfly(24, routing="ecmp")
    sources, destinations = all_pairs(spread.n_ranks)
    all_links, one_path = spread.routes(sources, destinations), hashed.routes(sources, destinations)

    assert (one_path.weights == 1.0).all()
    for pair in range(len(sources)):
        begin, end = all_links.starts[pair], all_links.starts[pair + 1]
        chosen = set(one_path.link_ids[one_path.starts[pair] : one_path.starts[pair + 1]].tolist())
        assert chosen <= set(all_links.link_ids[begin:end].tolist())
        assert len(chosen) == pytest.approx(all_links.weights[begin:end].sum(), rel=1e-12)


def test_links_that_are_slow_get_less_and_links_that_are_down_nothing() -> None:
    slow = dragonfly(24, changes=(LinkChange(between=("group0/router0", "group1/router2"), fraction=0.5),))
    down = dragonfly(24, changes=(LinkChange(between=("group0/router0", "group1/router2"), state="down"),))

    np.testing.assert_allclose([share for name, share in across(slow, 4, 8) if "global" in name], [1 / 6, 1 / 6, 1 / 3, 1 / 3], atol=GRAIN)
    assert [name for name, _ in across(down, 0, 12)] == [
        *("group0/router0/to1", "group0/router1/global0", "group1/router3/to2"),
        *("group0/router0/to1", "group0/router1/global1", "group1/router3/to2"),
    ]


def test_where_all_links_between_two_groups_are_down_a_third_is_passed() -> None:
    cluster = dragonfly(24, changes=(LinkChange(between=("group0/*", "group1/*"), state="down"),))

    groups = [name.split("/")[0] for name, _ in across(cluster, 0, 8) if "global" in name]

    assert groups == ["group0", "group2"]


def test_too_few_links_to_reach_all_groups_are_refused() -> None:
    with pytest.raises(DomainError, match="10 groups need 9 links each to reach all others, and have 8") as caught:
        dragonfly(80)

    assert caught.value.hint == "use 3 or more, or larger groups"


def test_the_bandwidth_of_a_link_can_be_given() -> None:
    fabric = replace(make_fabric("dragonfly"), link_bandwidth_bytes_per_s=5e9)
    cluster = build_cluster(SMALL, 8, fabric)

    assert {link.bandwidth_bytes_per_s for link in cluster.links if link.tier in ("leaf", "spine")} == {5e9}
