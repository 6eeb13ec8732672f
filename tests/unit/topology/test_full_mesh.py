from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_node
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wires import full_mesh
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, SCALE_UP_S, make_node, route


def test_every_peer_has_a_link_of_its_own() -> None:
    cluster = build_cluster(make_node("full_mesh"), 1)

    for a in range(8):
        for b in range(8):
            if a != b:
                (link,) = route(cluster, a, b)
                assert link.name == f"node0/gpu{a}/nvlink/to{b}"
                assert link.bandwidth_bytes_per_s == SCALE_UP_BYTES_PER_S / 7
                assert link.latency_s == SCALE_UP_S


def test_a_smaller_mesh_leaves_links_unused() -> None:
    wiring = full_mesh(make_node("full_mesh", n_accelerators=4))

    assert len(wiring.wires) == 12
    assert {wire.bandwidth_bytes_per_s for wire in wiring.wires} == {SCALE_UP_BYTES_PER_S / 7}


def test_more_peers_than_links_are_refused() -> None:
    with pytest.raises(DomainError, match="a full mesh of 9 needs 8 links on each accelerator; card has 7; use 8 or fewer"):
        full_mesh(make_node("full_mesh", n_accelerators=9))


def test_the_bridge_of_four_h200_nvl_gives_each_pair_a_third_of_the_links() -> None:
    node = load_node("pcie-h200-nvl")

    assert {wire.bandwidth_bytes_per_s for wire in full_mesh(node).wires} == {node.accelerator.scale_up_bandwidth_bytes_per_s / 3}
