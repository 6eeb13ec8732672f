from __future__ import annotations

from dataclasses import replace

from clustersim.hardware.catalog import load_node
from clustersim.topology.changes import LinkChange
from clustersim.topology.recently_used import MOST_RANKS, N_KEPT, cluster_of


def test_an_equal_cluster_is_the_same() -> None:
    node = load_node("dgx-h100")

    assert cluster_of(((node, 2),)) is cluster_of(((replace(node), 2),))


def test_a_cluster_of_other_nodes_or_links_is_another() -> None:
    node = load_node("dgx-h100")
    slower = LinkChange(between=("node0/nic0", "leaf0"), fraction=0.5)
    faster = replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=2 * node.nic.bandwidth_bytes_per_s))
    as_built = cluster_of(((node, 2),))

    assert cluster_of(((node, 3),)) is not as_built
    assert cluster_of(((faster, 2),)) is not as_built
    assert cluster_of(((node, 2),), changes=(slower,)) is not as_built


def test_only_the_last_few_are_kept() -> None:
    node = load_node("dgx-h100")
    first = cluster_of(((node, 2),))

    for count in range(3, 3 + N_KEPT):
        cluster_of(((node, count),))

    assert cluster_of(((node, 2),)) is not first


def test_a_large_cluster_is_not_kept() -> None:
    node = load_node("dgx-h100")
    count = MOST_RANKS // node.n_accelerators + 1

    assert cluster_of(((node, count),)) is not cluster_of(((node, count),))
