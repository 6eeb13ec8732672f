from __future__ import annotations

from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wires import bridge_pairs
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, SCALE_UP_S, make_node, route


def test_a_pair_talks_over_its_bridge_at_full_bandwidth() -> None:
    cluster = build_cluster(make_node("bridge_pairs"), 2)

    (link,) = route(cluster, 11, 10)

    assert link.name == "node1/gpu3/nvlink/to2"
    assert link.bandwidth_bytes_per_s == SCALE_UP_BYTES_PER_S
    assert link.latency_s == SCALE_UP_S


def test_others_talk_over_pcie() -> None:
    cluster = build_cluster(make_node("bridge_pairs"), 2)

    assert {link.tier for link in route(cluster, 1, 2)} == {"pcie"}
    assert {link.tier for link in route(cluster, 1, 6)} == {"pcie", "socket"}


def test_the_last_of_an_odd_number_has_no_bridge() -> None:
    wiring = bridge_pairs(make_node("bridge_pairs", n_accelerators=5))

    assert [wire.name for wire in wiring.wires] == ["gpu0/nvlink/to1", "gpu1/nvlink/to0", "gpu2/nvlink/to3", "gpu3/nvlink/to2"]
    assert (4, 3) not in wiring.paths
