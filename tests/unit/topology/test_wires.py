from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.topology import SCALE_UP
from clustersim.topology.wires import ScaleUpWiring, scale_up_bandwidth_bytes_per_s
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, make_node


def test_all_links_together_are_the_bandwidth_of_an_accelerator() -> None:
    assert scale_up_bandwidth_bytes_per_s(make_node()) == SCALE_UP_BYTES_PER_S


def test_a_card_without_links_is_told_to_use_pcie() -> None:
    with pytest.raises(DomainError, match="choose an accelerator that has them, or scale-up kind pcie"):
        scale_up_bandwidth_bytes_per_s(make_node(scale_up_links=0))


def test_no_scale_up_leaves_everything_to_pcie() -> None:
    assert SCALE_UP["pcie"](make_node("pcie")) == ScaleUpWiring(wires=(), paths={}, ports=())


def test_the_table_names_every_kind() -> None:
    assert list(SCALE_UP) == ["nvswitch", "cube_mesh", "full_mesh", "bridge_pairs", "pcie"]
