"""Drives of a host: two links beside its memory, on no route."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.hardware.models import Node
from clustersim.topology.cluster_wiring import build_cluster, build_mixed_cluster
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import make_node

READ, WRITE = 25e9, 16e9


def with_nvme(node: Node | None = None) -> Node:
    node = node or make_node()
    host = replace(node.host, storage_bandwidth_bytes_per_s=READ, storage_write_bandwidth_bytes_per_s=WRITE)
    return replace(node, name="driven", host=host)


def hosts(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


def storage(cluster: Cluster) -> dict[str, float]:
    return {link.name: link.bandwidth_bytes_per_s for link in cluster.links if link.tier == "storage"}


def test_every_host_with_nvme_reads_and_writes_over_a_link_of_its_own() -> None:
    cluster = build_cluster(with_nvme(), 2)

    assert storage(cluster) == {"node0/nvme/read": READ, "node0/nvme/write": WRITE, "node1/nvme/read": READ, "node1/nvme/write": WRITE}
    assert [[cluster.link_name(int(link)) for link in pair] for pair in cluster.storage_links(hosts(1, 0))] == [
        ["node1/nvme/read", "node1/nvme/write"],
        ["node0/nvme/read", "node0/nvme/write"],
    ]


def test_links_of_drives_lead_from_and_to_the_memory() -> None:
    cluster = build_cluster(with_nvme(), 1)

    read, write = cluster.storage_links(hosts(0))[0]

    assert cluster.ends(int(read)) == ("node0/nvme", "node0/memory")
    assert cluster.ends(int(write)) == ("node0/memory", "node0/nvme")


def test_a_host_without_nvme_has_no_such_link() -> None:
    cluster = build_cluster(make_node(), 2)

    assert not storage(cluster)
    with pytest.raises(DomainError, match="the host of node 1 has no NVMe") as refused:
        cluster.storage_links(hosts(1))
    assert refused.value.hint == "keep it in the memory of the host"


def test_kinds_of_nodes_may_differ_in_their_drives() -> None:
    cluster = build_mixed_cluster([(make_node(), 2), (with_nvme(), 1)])

    assert list(storage(cluster)) == ["node2/nvme/read", "node2/nvme/write"]
    assert cluster.storage_links(hosts(2)).tolist() == [[len(cluster.links) - 2, len(cluster.links) - 1]]
    with pytest.raises(DomainError, match="node 0 has no NVMe"):
        cluster.storage_links(hosts(2, 0))


def test_a_host_outside_the_cluster_is_refused() -> None:
    with pytest.raises(DomainError, match="host 2 is outside"):
        build_cluster(with_nvme(), 2).storage_links(hosts(2))
