"""Copies inside nodes: which links carry them, and how often the memory does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.host import COPY_START_S, lay_copy, lay_update
from clustersim.collectives.timing import Operation
from clustersim.errors import DomainError
from clustersim.hardware.library_costs import Place
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_node
from tests.unit.topology.test_storage import with_nvme

SIZE = 8e9


def cluster_of(n_nodes: int = 1) -> Cluster:
    return build_cluster(with_nvme(make_node(n_accelerators=4, accelerators_per_pcie_switch=2)), n_nodes)


def load(cluster: Cluster, operation: Operation) -> dict[str, float]:
    """Return what each link carries for each byte of one rank."""
    ((leg,),) = operation.phases
    names = [cluster.link_name(int(link)) for link in leg.route_set.link_ids]
    return dict(zip(names, leg.route_set.flows.tolist(), strict=True))


def copied(source: Place, destination: Place, *ranks: int, cluster: Cluster | None = None) -> dict[str, float]:
    cluster = cluster or cluster_of()
    return load(cluster, lay_copy(cluster, np.array(ranks), source, destination, size_bytes=SIZE))


@pytest.mark.parametrize(("source", "destination", "way"), [("accelerator", "host", "up"), ("host", "accelerator", "down")])
def test_a_copy_takes_pcie_one_way_and_the_memory_once(source: Place, destination: Place, way: str) -> None:
    carried = copied(source, destination, 0)

    assert carried.pop("node0/memory") == 1.0
    assert set(carried.values()) == {1.0}
    assert all("pcie" in name and name.endswith(way) for name in carried)


def test_accelerators_below_one_switch_share_its_uplink() -> None:
    carried = copied("accelerator", "host", 0, 1, 2)

    assert sorted(carried.values()) == [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]
    assert carried["node0/memory"] == 3.0


def test_drives_and_memory_carry_what_passes_between_them_once() -> None:
    assert copied("nvme", "host", 0, 1) == {"node0/nvme/read": 2.0, "node0/memory": 2.0}
    assert copied("host", "nvme", 3) == {"node0/nvme/write": 1.0, "node0/memory": 1.0}


def test_between_accelerator_and_drive_the_memory_is_written_and_read() -> None:
    down, up = copied("nvme", "accelerator", 0), copied("accelerator", "nvme", 0)

    assert down["node0/memory"] == up["node0/memory"] == 2.0
    assert down["node0/nvme/read"] == up["node0/nvme/write"] == 1.0
    assert "node0/nvme/write" not in down


def test_each_node_serves_its_own_ranks() -> None:
    carried = copied("accelerator", "host", 0, 5, 6, cluster=cluster_of(2))

    assert {name: flows for name, flows in carried.items() if name.endswith("memory")} == {"node0/memory": 1.0, "node1/memory": 2.0}


def test_a_copy_costs_its_start_and_the_way() -> None:
    cluster = cluster_of()

    ((leg,),) = lay_copy(cluster, np.array([0]), "accelerator", "host", size_bytes=SIZE).phases

    way_s = float(cluster.routes(np.array([0]), cluster.host_endpoint(np.array([0]))).latency_s[0])
    assert leg.latency_s == COPY_START_S + way_s
    assert leg.bytes_per_flow == SIZE


def test_what_the_processors_start_themselves_costs_no_start() -> None:
    ((leg,),) = lay_copy(cluster_of(), np.array([0]), "nvme", "host", size_bytes=SIZE).phases

    assert leg.latency_s == 0.0


@pytest.mark.parametrize(("ranks", "uniform"), [((0, 4), True), ((0, 1, 4), False)])
def test_nodes_that_serve_unlike_numbers_of_ranks_are_uneven(ranks: tuple[int, ...], *, uniform: bool) -> None:
    cluster = cluster_of(2)

    assert lay_copy(cluster, np.array(ranks), "accelerator", "host", size_bytes=SIZE).uniform is uniform
    assert lay_update(cluster, np.array(ranks), cluster.bandwidth_bytes_per_s, size_bytes=SIZE).uniform is uniform


def test_a_node_without_nvme_is_named() -> None:
    cluster = build_cluster(make_node(), 1)

    with pytest.raises(DomainError, match="the host of node 0 has no NVMe"):
        lay_copy(cluster, np.array([0]), "host", "nvme", size_bytes=SIZE)


def test_an_update_takes_the_memory_once_for_each_rank() -> None:
    cluster = cluster_of()

    operation = lay_update(cluster, np.array([0, 1, 3]), cluster.bandwidth_bytes_per_s, size_bytes=SIZE)

    assert load(cluster, operation) == {"node0/memory": 3.0}


@pytest.mark.parametrize("n_sockets", [1, 2])
def test_one_rank_gets_the_memory_of_one_socket(n_sockets: int) -> None:
    node = make_node(n_sockets=n_sockets)
    cluster = build_cluster(replace(node, host=replace(node.host, memory_bandwidth_bytes_per_s=256e9)), 1)

    ((leg,),) = lay_update(cluster, np.array([0]), 0.8 * np.asarray(cluster.bandwidth_bytes_per_s), size_bytes=SIZE).phases

    assert leg.cap_bytes_per_s == pytest.approx(0.8 * 256e9 / n_sockets, rel=1e-12)


def test_of_unlike_hosts_the_slowest_socket_sets_the_pace() -> None:
    one, two = make_node(n_sockets=1), replace(make_node(n_sockets=2), name="other")
    cluster = build_mixed_cluster([(one, 1), (two, 1)])

    ((leg,),) = lay_update(cluster, np.array([0, cluster.n_ranks - 1]), cluster.bandwidth_bytes_per_s, size_bytes=SIZE).phases

    assert leg.cap_bytes_per_s == pytest.approx(two.host.memory_bandwidth_bytes_per_s / 2, rel=1e-12)
