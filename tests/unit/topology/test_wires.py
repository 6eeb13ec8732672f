from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.topology import SCALE_UP
from clustersim.topology.wires import ScaleUpWiring, scale_up_bandwidth_bytes_per_s, wire_mesh
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, make_node


def test_all_links_together_are_the_bandwidth_of_an_accelerator() -> None:
    assert scale_up_bandwidth_bytes_per_s(make_node()) == SCALE_UP_BYTES_PER_S


def test_a_card_without_links_is_told_to_use_pcie() -> None:
    with pytest.raises(DomainError, match="has no scale-up links"):
        scale_up_bandwidth_bytes_per_s(make_node(scale_up_links=0))


def test_no_scale_up_leaves_everything_to_pcie() -> None:
    assert SCALE_UP["pcie"](make_node("pcie")) == ScaleUpWiring(wires=(), paths={}, ports=())


LINE = ((0, 2, 0, 0), (2, 0, 1, 0), (0, 1, 0, 3), (0, 0, 3, 0))


def test_each_direction_of_each_joined_pair_is_a_wire() -> None:
    wiring = wire_mesh(make_node("bridge_pairs", n_accelerators=4), LINE)

    assert {wire.name: wire.bandwidth_bytes_per_s * 4 / SCALE_UP_BYTES_PER_S for wire in wiring.wires} == {
        "gpu0/nvlink/to1": 2,
        "gpu1/nvlink/to0": 2,
        "gpu1/nvlink/to2": 1,
        "gpu2/nvlink/to1": 1,
        "gpu2/nvlink/to3": 3,
        "gpu3/nvlink/to2": 3,
    }


def test_one_accelerator_may_relay_and_two_may_not() -> None:
    paths = wire_mesh(make_node("bridge_pairs", n_accelerators=4), LINE).paths

    assert paths[0, 2] == ("gpu0/nvlink/to1", "gpu1/nvlink/to2")
    assert (0, 3) not in paths


def test_a_mesh_without_links_is_refused() -> None:
    with pytest.raises(DomainError, match="card has no scale-up links"):
        wire_mesh(make_node("bridge_pairs", n_accelerators=4, scale_up_links=0), LINE)
