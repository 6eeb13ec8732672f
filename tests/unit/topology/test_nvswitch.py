from __future__ import annotations

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wires import nvswitch
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, SCALE_UP_S, all_pairs, make_node, route


def test_a_route_goes_up_from_the_sender_and_down_to_the_receiver() -> None:
    cluster = build_cluster(make_node(), 4)

    links = route(cluster, 25, 30)

    assert [link.name for link in links] == ["node3/gpu1/nvlink/up", "node3/gpu6/nvlink/down"]
    assert {link.tier for link in links} == {"nvlink"}


def test_each_accelerator_has_its_full_bandwidth_both_ways() -> None:
    wiring = nvswitch(make_node())

    assert len(wiring.wires) == 16
    assert {wire.bandwidth_bytes_per_s for wire in wiring.wires} == {SCALE_UP_BYTES_PER_S}


def test_a_route_takes_the_latency_of_one_traversal() -> None:
    cluster = build_cluster(make_node(), 1)

    assert sum(link.latency_s for link in route(cluster, 0, 7)) == SCALE_UP_S


def test_a_domain_of_many_trays_is_joined_by_one_switch() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=18), 36)

    names = [link.name for link in route(cluster, 2, 70)]

    assert names == ["node0/gpu2/nvlink/up", "node17/gpu2/nvlink/down"]
    assert cluster.ends(0)[1] == "domain0/nvswitch"


def test_an_accelerator_without_links_cannot_hang_at_a_switch() -> None:
    node = make_node(scale_up_links=0)

    with pytest.raises(DomainError, match="card has no scale-up links, but box wires them as nvswitch") as caught:
        nvswitch(node)

    assert caught.value.path == ("accelerator",)
    assert "scale-up kind pcie" in str(caught.value)


def test_a_rack_that_is_filled_in_part_is_a_domain_like_the_others() -> None:
    cluster = build_cluster(make_node(n_accelerators=4, n_nics=4, nodes_per_domain=18), 40)
    sources, destinations = all_pairs(cluster.n_ranks)
    same_rack = cluster.domain_of(sources) == cluster.domain_of(destinations)

    lengths = np.diff(cluster.routes(sources, destinations).starts)

    assert cluster.n_domains == 3
    assert np.bincount(cluster.domain_of(np.arange(cluster.n_ranks))).tolist() == [72, 72, 16]
    assert set(lengths[same_rack & (sources != destinations)].tolist()) == {2}
    assert lengths[~same_rack].min() > 2
    assert [link.name for link in route(cluster, 144, 159)] == ["node36/gpu0/nvlink/up", "node39/gpu3/nvlink/down"]
