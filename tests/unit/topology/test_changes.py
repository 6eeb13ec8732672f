from __future__ import annotations

import numpy as np
import pytest

from clustersim.topology.cluster import Link
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import NIC_BYTES_PER_S, make_fabric, make_node, ranks

ADAPTER = ("node0/nic1", "leaf0")


def worn(*changes: LinkChange) -> Cluster:
    return build_cluster(make_node(), 4, make_fabric("leaf_spine", n_ports=8), changes=changes)


def links(cluster: Cluster) -> dict[str, Link]:
    return {link.name: link for link in cluster.links}


def test_a_bandwidth_holds_for_both_directions() -> None:
    changed = links(worn(LinkChange.model_validate({"between": ADAPTER, "bandwidth": "1 GB/s"})))

    assert changed["node0/nic1/tx"].bandwidth_bytes_per_s == changed["node0/nic1/rx"].bandwidth_bytes_per_s == 1e9
    assert changed["node0/nic2/tx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S


def test_forward_only_is_from_the_first_to_the_second() -> None:
    changed = links(worn(LinkChange(between=("leaf0", "node0/nic1"), fraction=0.5, direction="forward")))

    assert changed["node0/nic1/rx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S / 2
    assert changed["node0/nic1/tx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S


def test_a_bandwidth_is_that_of_parallel_links_together() -> None:
    fabric = make_fabric("leaf_spine", n_ports=8, routing="ecmp")
    change = LinkChange.model_validate({"between": ("leaf0", "spine1"), "bandwidth": "8 GB/s"})
    cluster = build_cluster(make_node(), 4, fabric, changes=[change])

    parallel = [link.bandwidth_bytes_per_s for name, link in links(cluster).items() if name.startswith("leaf0/spine1/up")]

    assert parallel == [2e9] * 4


def test_a_latency_replaces_that_of_the_link_and_shows_in_the_routes() -> None:
    before = worn().routes(ranks(1, 0), ranks(9, 8)).latency_s
    cluster = worn(LinkChange.model_validate({"between": ADAPTER, "latency": "1 ms"}))

    after = cluster.routes(ranks(1, 0), ranks(9, 8)).latency_s

    assert after[0] == pytest.approx(before[0] - worn().links[links_id(cluster, "node0/nic1/tx")].latency_s + 1e-3, rel=1e-12)
    assert after[1] == before[1]


def links_id(cluster: Cluster, name: str) -> int:
    return next(link for link in range(len(cluster.links)) if cluster.link_name(link) == name)


def test_later_changes_come_on_top_of_earlier_ones() -> None:
    changed = links(worn(LinkChange(between=("node*/nic*", "leaf*"), fraction=0.5), LinkChange(between=ADAPTER, fraction=0.25)))

    assert changed["node0/nic1/tx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S / 4
    assert changed["node3/nic7/rx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S / 2


def test_a_link_that_is_down_is_on_no_route_and_keeps_its_bandwidth() -> None:
    cluster = worn(LinkChange(between=ADAPTER, state="down"))
    sources, destinations = np.repeat(ranks(0, 1, 2), 32), np.tile(np.arange(32), 3)

    used = cluster.routes(sources, destinations).link_ids

    assert cluster.works is not None
    assert [cluster.link_name(int(link)) for link in np.flatnonzero(~cluster.works)] == ["node0/nic1/tx", "node0/nic1/rx"]
    assert links(cluster)["node0/nic1/tx"].bandwidth_bytes_per_s == NIC_BYTES_PER_S
    assert links_id(cluster, "node0/nic1/tx") not in used


def test_a_later_change_brings_a_link_up_again() -> None:
    cluster = worn(LinkChange(between=("node0/nic*", "leaf0"), state="down"), LinkChange(between=ADAPTER, fraction=0.5))
    assert cluster.works is not None

    assert links_id(cluster, "node0/nic1/tx") in cluster.routes(ranks(1), ranks(9)).link_ids
    assert (~cluster.works).sum() == 2 * 7


def test_both_directions_of_a_half_duplex_link_are_the_first_one() -> None:
    cluster = worn(LinkChange.model_validate({"between": ADAPTER, "half_duplex": True, "bandwidth": "7 GB/s"}))
    out, back = (cluster.routes(ranks(a), ranks(b)).link_ids.tolist() for a, b in ((1, 9), (9, 1)))

    (common,) = set(out) & set(back)

    assert (cluster.link_name(common), cluster.links[common].bandwidth_bytes_per_s) == ("node0/nic1/tx", 7e9)


def test_half_duplex_goes_by_the_order_of_the_two_ends() -> None:
    cluster = worn(LinkChange(between=("leaf0", "node0/nic1"), half_duplex=True))

    (common,) = set(cluster.routes(ranks(1), ranks(9)).link_ids.tolist()) & set(cluster.routes(ranks(9), ranks(1)).link_ids.tolist())

    assert cluster.link_name(common) == "node0/nic1/rx"


def test_half_duplex_parallel_links_pair_up() -> None:
    fabric = make_fabric("leaf_spine", n_ports=8, routing="ecmp")
    cluster = build_cluster(make_node(), 4, fabric, changes=[LinkChange(between=("leaf0", "spine0"), half_duplex=True)])
    assert cluster.shared is not None

    moved = np.flatnonzero(cluster.shared != np.arange(len(cluster.links)))

    assert [cluster.link_name(int(link)) for link in moved] == [f"leaf0/spine0/down{cable}" for cable in range(4)]
    assert [cluster.link_name(int(cluster.shared[link])) for link in moved] == [f"leaf0/spine0/up{cable}" for cable in range(4)]


def test_the_ports_of_a_half_duplex_nvlink_are_one_link() -> None:
    cluster = worn(LinkChange(between=("node0/gpu1", "nvswitch"), half_duplex=True))

    up, down = cluster.switch_ports(ranks(1))[0]

    assert up == down
    assert len(set(cluster.switch_ports(ranks(0))[0].tolist())) == 2
