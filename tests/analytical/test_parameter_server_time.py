"""Parameter servers against their closed forms and against the ring, on idle links without latency.

N workers with one accelerator and one adapter of B bytes per second each, k servers, a tensor of one byte.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.push_pull import lay_pull, lay_push, lay_push_pull
from clustersim.hardware.library_costs import Servers
from clustersim.hardware.models import Fabric, ServerHosts
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.beside import flown_s
from tests.unit.collectives.execution import everybody, laid
from tests.unit.topology.factories import NIC_BYTES_PER_S, PCIE_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_fabric, make_node

B = NIC_BYTES_PER_S
MEMORY = 4e11
ROUND_OFF = 1e-9
COUNTS = pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 1), (4, 2), (8, 3), (8, 8), (4, 16), (64, 16)])


def workers_and_servers(n: int, k: int, *, memory_bytes_per_s: float = MEMORY, fabric: Fabric | None = None, per_node: int = 1) -> Cluster:
    node = make_node(n_accelerators=per_node, n_nics=per_node, accelerators_per_pcie_switch=1)
    host = replace(node.host, memory_bandwidth_bytes_per_s=memory_bytes_per_s)
    servers = ServerHosts(n_hosts=k, host=host, nic=node.nic, n_nics=1) if k else None
    return build_cluster(replace(node, host=host), n, fabric or make_fabric("single_switch"), servers=servers)


def dedicated(cluster: Cluster) -> range:
    return range(cluster.n_nodes, cluster.n_hosts)


def push_s(cluster: Cluster, hosts: range | list[int], *, per_node: bool = False) -> float:
    return flown_s(cluster, lay_push(cluster, everybody(cluster), Servers(hosts=tuple(hosts), per_node=per_node)))


def pull_s(cluster: Cluster, hosts: range | list[int], *, per_node: bool = False) -> float:
    return flown_s(cluster, lay_pull(cluster, everybody(cluster), Servers(hosts=tuple(hosts), per_node=per_node)))


def both_s(cluster: Cluster, hosts: range | list[int]) -> float:
    """Return the duration of both at once, as for a tensor of many layers in steady state."""
    group, servers = everybody(cluster), Servers(hosts=tuple(hosts))
    push, pull = lay_push(cluster, group, servers), lay_pull(cluster, group, servers)
    return flown_s(cluster, replace(push, phases=(push.phases[0] + pull.phases[0],)))


def ring_s(cluster: Cluster) -> float:
    return flown_s(cluster, laid(ALGORITHMS["all_reduce"]["ring"], cluster))


@COUNTS
def test_servers_receive_from_all_workers_at_one_adapter(n: int, k: int) -> None:
    cluster = workers_and_servers(n, k)

    expected_s = max(1.0, n / k) / B
    assert push_s(cluster, dedicated(cluster)) == pytest.approx(expected_s, rel=ROUND_OFF)
    assert pull_s(cluster, dedicated(cluster)) == pytest.approx(expected_s, rel=ROUND_OFF)


@COUNTS
def test_push_and_pull_use_both_directions_at_once(n: int, k: int) -> None:
    cluster = workers_and_servers(n, k)

    assert both_s(cluster, dedicated(cluster)) == pytest.approx(max(1.0, n / k) / B, rel=ROUND_OFF)


@COUNTS
@pytest.mark.parametrize("memory_bytes_per_s", [1e10, 9e10])
def test_the_memory_of_a_server_bounds_what_it_adds(n: int, k: int, memory_bytes_per_s: float) -> None:
    cluster = workers_and_servers(n, k, memory_bytes_per_s=memory_bytes_per_s)
    hosts = dedicated(cluster)

    wire_s = max(1.0, n / k) / B
    assert push_s(cluster, hosts) == pytest.approx(max(wire_s, 4 * n / k / memory_bytes_per_s), rel=ROUND_OFF)
    assert pull_s(cluster, hosts) == pytest.approx(max(wire_s, n / k / memory_bytes_per_s), rel=ROUND_OFF)


@pytest.mark.parametrize(("n", "k"), [(4, 2), (8, 3), (8, 8)])
def test_push_and_pull_at_once_share_the_memory(n: int, k: int) -> None:
    cluster = workers_and_servers(n, k, memory_bytes_per_s=1e10)

    assert both_s(cluster, dedicated(cluster)) == pytest.approx(5 * n / k / 1e10, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 5, 64])
def test_a_server_on_every_worker_moves_what_a_ring_moves(n: int) -> None:
    cluster = workers_and_servers(n, 0)

    # Of the tensor, 1 / n stays in the node; but all of it crosses the PCIe link of the accelerator.
    expected_s = max((n - 1) / n / B, 1 / PCIE_BYTES_PER_S)
    assert push_s(cluster, range(n)) == pytest.approx(expected_s, rel=ROUND_OFF)
    assert pull_s(cluster, range(n)) == pytest.approx(expected_s, rel=ROUND_OFF)
    if n >= 5:
        assert 2 * expected_s == pytest.approx(ring_s(cluster), rel=ROUND_OFF)
        assert both_s(cluster, range(n)) == pytest.approx(ring_s(cluster), rel=ROUND_OFF)


@pytest.mark.parametrize(("n", "k"), [(8, 1), (8, 3), (16, 4)])
def test_servers_on_some_workers_receive_from_the_others(n: int, k: int) -> None:
    cluster = workers_and_servers(n, 0)

    assert push_s(cluster, range(k)) == pytest.approx((n - 1) / k / B, rel=ROUND_OFF)


@pytest.mark.parametrize("n", [2, 64])
def test_against_the_ring_fewer_servers_than_workers_never_win_one_way_after_the_other(n: int) -> None:
    for k in sorted({1, n // 2, n - 1, n}):
        cluster = workers_and_servers(n, k)
        assert push_s(cluster, dedicated(cluster)) + pull_s(cluster, dedicated(cluster)) > ring_s(cluster)


@pytest.mark.parametrize("n", [2, 3, 64])
def test_against_the_ring_overlapped_servers_win_from_half_as_many_on(n: int) -> None:
    crossover = n * n / (2 * (n - 1))
    enough = ceil(crossover)

    winning = workers_and_servers(n, enough)
    assert both_s(winning, dedicated(winning)) <= ring_s(winning) * (1 + ROUND_OFF)
    assert both_s(winning, dedicated(winning)) == pytest.approx(max(1.0, n / enough) / B, rel=ROUND_OFF)
    if crossover > 1 and enough > 1:
        losing = workers_and_servers(n, enough - 1)
        assert both_s(losing, dedicated(losing)) > ring_s(losing)


def test_as_many_servers_as_workers_take_nearly_half_of_the_ring() -> None:
    cluster = workers_and_servers(64, 64)

    assert ring_s(cluster) / both_s(cluster, dedicated(cluster)) == pytest.approx(2 * 63 / 64, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n", "k", "nodes_per_leaf"), [(8, 2, 4), (8, 8, 4), (16, 3, 8), (8, 6, 2)])
def test_oversubscribed_leaves_slow_servers_below_their_own(n: int, k: int, nodes_per_leaf: int, ratio: float) -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=nodes_per_leaf, oversubscription=ratio)
    cluster = workers_and_servers(n, k, fabric=fabric)

    beside = min(k, nodes_per_leaf)
    expected_s = max(1.0, n / k, ratio, ratio * beside * n / k / nodes_per_leaf) / B
    assert push_s(cluster, dedicated(cluster)) == pytest.approx(expected_s, rel=ROUND_OFF)
    assert pull_s(cluster, dedicated(cluster)) == pytest.approx(expected_s, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n", "nodes_per_leaf"), [(8, 2), (16, 4), (32, 8)])
def test_oversubscription_slows_servers_on_all_workers_more_than_the_ring(n: int, nodes_per_leaf: int, ratio: float) -> None:
    cluster = workers_and_servers(n, 0, fabric=make_fabric("leaf_spine", nodes_per_leaf=nodes_per_leaf, oversubscription=ratio))

    assert push_s(cluster, range(n)) == pytest.approx(max(n - 1, ratio * (n - nodes_per_leaf)) / n / B, rel=ROUND_OFF)
    assert ring_s(cluster) == pytest.approx(2 * (n - 1) / n * max(1.0, ratio / nodes_per_leaf) / B, rel=ROUND_OFF)


@pytest.mark.parametrize(("n_nodes", "per_node", "k"), [(2, 8, 1), (4, 8, 2), (4, 2, 8), (2, 4, 16)])
def test_nodes_that_add_up_first_push_one_gradient_each(n_nodes: int, per_node: int, k: int) -> None:
    cluster = workers_and_servers(n_nodes, k, per_node=per_node)
    hosts = dedicated(cluster)

    alone_s = max(1.0, n_nodes * per_node / k) / B
    together_s = max(1 / per_node, n_nodes / k) / B
    assert push_s(cluster, hosts) == pytest.approx(alone_s, rel=ROUND_OFF)
    assert push_s(cluster, hosts, per_node=True) == pytest.approx(together_s, rel=ROUND_OFF)
    assert pull_s(cluster, hosts, per_node=True) == pytest.approx(together_s, rel=ROUND_OFF)
    assert together_s > (per_node - 1) / per_node / SCALE_UP_BYTES_PER_S


@pytest.mark.parametrize(("n", "k"), [(4, 1), (8, 3), (16, 1), (16, 16), (64, 4)])
def test_servers_win_below_the_size_at_which_their_bytes_cost_what_the_steps_of_the_ring_do(n: int, k: int) -> None:
    cluster = workers_and_servers(n, k)
    served = lay_push_pull(cluster, everybody(cluster), Servers(hosts=tuple(dedicated(cluster))))
    ring = laid(ALGORITHMS["all_reduce"]["ring"], cluster)

    steps = [sum(max(flow_set.inter_steps for flow_set in phase) for phase in pattern.phases) for pattern in (served, ring)]
    step_s = 20e-6
    equal_bytes = (steps[1] - steps[0]) * step_s / (flown_s(cluster, served) - flown_s(cluster, ring))

    assert steps == [2, 2 * (n - 1)]
    assert equal_bytes == pytest.approx((n - 2) * step_s * B / (n / k - (n - 1) / n), rel=ROUND_OFF)
