from __future__ import annotations

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.collectives.pattern import Pattern
from clustersim.collectives.push_pull import greedy_holders, lay_pull, lay_push, lay_push_pull, lay_update
from clustersim.hardware.library_costs import Servers
from clustersim.hardware.models import ServerHosts
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.beside import flown_s
from tests.unit.collectives.execution import everybody, groups, load_by_name
from tests.unit.topology.factories import make_fabric, make_node


def cluster_of(n_nodes: int, n_servers: int, *, per_node: int = 8, nodes_per_domain: int = 1) -> Cluster:
    node = make_node(n_accelerators=per_node, n_nics=per_node, accelerators_per_pcie_switch=1, nodes_per_domain=nodes_per_domain)
    servers = ServerHosts(n_hosts=n_servers, host=node.host, nic=node.nic, n_nics=1) if n_servers else None
    return build_cluster(node, n_nodes, make_fabric("single_switch"), servers=servers)


def shares_of(pattern: Pattern) -> list[list[float]]:
    return [[flow_set.share for flow_set in phase] for phase in pattern.phases]


def tier_load(cluster: Cluster, pattern: Pattern, word: str) -> dict[str, float]:
    return {name: share for name, share in load_by_name(cluster, pattern).items() if word in name}


def test_memory_carries_four_bytes_for_each_that_is_added_and_one_for_each_that_is_sent() -> None:
    cluster = cluster_of(2, 1)
    servers = Servers(hosts=(2,))

    assert tier_load(cluster, lay_push(cluster, everybody(cluster), servers), "memory") == {"server0/memory": 4 * 16.0}
    assert tier_load(cluster, lay_pull(cluster, everybody(cluster), servers), "memory") == {"server0/memory": 16.0}


def test_servers_are_one_flow_set() -> None:
    cluster = cluster_of(2, 4)

    assert shares_of(lay_push(cluster, everybody(cluster), Servers(hosts=(2, 3, 4, 5)))) == [[0.25]]


def test_the_share_of_the_own_node_does_not_cross_the_network() -> None:
    cluster = cluster_of(2, 0, per_node=1)

    pattern = lay_push(cluster, everybody(cluster), Servers(hosts=(0, 1)))

    assert tier_load(cluster, pattern, "nic") == {f"node{node}/nic0/{way}": 0.5 for node in (0, 1) for way in ("tx", "rx")}
    assert tier_load(cluster, pattern, "memory") == {"node0/memory": 4.0, "node1/memory": 4.0}
    assert [(flow_set.intra_steps, flow_set.inter_steps) for flow_set in pattern.phases[0]] == [(1, 0), (0, 1)]


def test_in_a_rack_hosts_of_the_own_domain_are_inside() -> None:
    cluster = cluster_of(4, 0, per_node=2, nodes_per_domain=2)

    inside, between = lay_push(cluster, groups(cluster, (0,)), Servers(hosts=(1, 2))).phases[0]

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (between.intra_steps, between.inter_steps) == (0, 1)


def test_a_round_is_push_then_pull() -> None:
    cluster = cluster_of(2, 1)
    group, servers = everybody(cluster), Servers(hosts=(2,))

    both = lay_push_pull(cluster, group, servers)

    assert len(both.phases) == 2
    parts_s = flown_s(cluster, lay_push(cluster, group, servers)) + flown_s(cluster, lay_pull(cluster, group, servers))
    assert flown_s(cluster, both) == pytest.approx(parts_s, rel=1e-12)


def test_nodes_with_fewer_members_push_larger_parts() -> None:
    cluster = cluster_of(2, 1)
    group = groups(cluster, (0, 1, 2, 3, 8, 9))

    pattern = lay_push(cluster, group, Servers(hosts=(2,), per_node=True))

    load = tier_load(cluster, pattern, "nic")
    assert load["node0/nic0/tx"] == pytest.approx(1 / 4, rel=1e-12)
    assert load["node1/nic0/tx"] == pytest.approx(1 / 2, rel=1e-12)
    assert not pattern.uniform


def test_groups_of_an_orbit_meet_at_the_servers() -> None:
    cluster = cluster_of(2, 1)

    load = tier_load(cluster, lay_push(cluster, groups(cluster, (0, 8), (1, 9)), Servers(hosts=(2,))), "server0/nic")

    assert load == {"server0/nic0/rx": 4.0}


@given(sizes=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), n_servers=st.integers(1, 8))
def test_no_server_holds_more_than_another_by_more_than_one_tensor(sizes: list[float], n_servers: int) -> None:
    holders = greedy_holders(sizes, n_servers)

    held = [fsum(size for size, holder in zip(sizes, holders, strict=True) if holder == server) for server in range(n_servers)]
    assert max(held) - min(held) <= max(sizes) * (1 + 1e-12)


def test_an_update_fills_the_memory_of_each_server_with_its_share_for_every_group() -> None:
    cluster = cluster_of(2, 2, per_node=2)
    servers = Servers(hosts=(2, 3))

    pattern = lay_update(cluster, groups(cluster, (0, 2), (1, 3)), servers)

    assert load_by_name(cluster, pattern) == {"server0/memory": 2 * 0.5, "server1/memory": 2 * 0.5}
    assert [flow_set.intra_steps + flow_set.inter_steps for phase in pattern.phases for flow_set in phase] == [0]
