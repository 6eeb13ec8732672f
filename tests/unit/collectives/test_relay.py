from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.collectives.direct import DIRECT
from clustersim.collectives.pattern import grouping
from clustersim.collectives.relay import RELAY
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import groups, laid, load_by_name, load_of, nodes_of, one_domain, one_each
from tests.unit.topology.factories import SCALE_UP_S, make_fabric, make_node


@pytest.mark.parametrize("cluster", [one_domain(6), one_each(6)], ids=["one domain", "one in each"])
def test_without_somebody_to_relay_it_is_direct(cluster: Cluster) -> None:
    np.testing.assert_allclose(load_of(cluster, laid(RELAY, cluster)), load_of(cluster, laid(DIRECT["all_to_all"], cluster)), rtol=1e-12)


def test_relays_take_what_is_for_their_rail_over_nvlink() -> None:
    cluster = nodes_of(4, 3)

    load = load_by_name(cluster, laid(RELAY, cluster))

    # A rank hands three quarters of its data to the other three rails, and two thirds of all data leave the node.
    assert load["node0/gpu0/nvlink/up"] == pytest.approx(3 / 4, rel=1e-12)
    assert load["node0/gpu0/nvlink/down"] == pytest.approx(3 / 4, rel=1e-12)
    assert load["node0/nic0/tx"] == pytest.approx(2 / 3, rel=1e-12)
    assert load["node0/nic0/rx"] == pytest.approx(2 / 3, rel=1e-12)


def test_each_relay_sends_one_flow_to_each_node() -> None:
    _, rails = laid(RELAY, nodes_of(4, 3)).phases[0]

    assert set(rails.route_set.flows.tolist()) == {2.0}
    assert rails.share == 4 / 12


def test_nothing_crosses_the_spines_where_a_rail_has_one_leaf() -> None:
    cluster = nodes_of(4, 3, fabric=make_fabric("rail_optimized", nodes_per_leaf=3))

    names = list(load_by_name(cluster, laid(RELAY, cluster)))

    assert [name for name in names if name.startswith("leaf")] == []
    assert [name for name in load_by_name(cluster, laid(DIRECT["all_to_all"], cluster)) if name.startswith("leaf")] != []


def test_a_rail_waits_for_one_step_over_nvlink() -> None:
    inside, rails = laid(RELAY, nodes_of(4, 3)).phases[0]

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (rails.intra_steps, rails.inter_steps) == (1, 1)
    assert rails.intra_latency_s == SCALE_UP_S


def test_where_a_domain_is_short_of_members_its_places_start_again() -> None:
    cluster = build_cluster(make_node(), 2)

    pattern = RELAY.lay(cluster, groups(cluster, (0, 1, 2, 8, 9)))

    load = load_by_name(cluster, pattern)
    assert not pattern.uniform
    # Node 1 has two members for three places: 8 sends to 0 and 2, 9 to 1, for both of them.
    assert load["node1/nic0/tx"] == pytest.approx(4 / 5, rel=1e-12)
    assert load["node1/nic1/tx"] == pytest.approx(2 / 5, rel=1e-12)
    assert load["node1/gpu0/nvlink/down"] == pytest.approx((2 + 1) / 5, rel=1e-12)
    # Node 0 has three for two: member 2 has nobody to send to.
    assert "node0/nic2/tx" not in load
    assert load["node0/nic0/tx"] == load["node0/nic1/tx"] == pytest.approx(3 / 5, rel=1e-12)


@given(counts=st.lists(st.integers(1, 8), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_every_rank_is_sent_its_data_once_over_the_network(counts: list[int]) -> None:
    cluster = build_cluster(make_node(), 5)
    members = np.concatenate([8 * node + np.arange(count) for node, count in enumerate(counts)])
    n = len(members)

    load = load_by_name(cluster, RELAY.lay(cluster, grouping(cluster, members[None])))

    for node, count in enumerate(counts):
        for index in range(count):
            assert load.get(f"node{node}/nic{index}/rx", 0.0) == pytest.approx((n - count) / n, rel=1e-9, abs=1e-12)
        sent = sum(load.get(f"node{node}/nic{index}/tx", 0.0) for index in range(8))
        assert sent == pytest.approx(count * (n - count) / n, rel=1e-9, abs=1e-12)
