"""Where the groups of each dimension lie."""

from __future__ import annotations

import pytest

from clustersim.config.mesh_text import MeshDimension, rank_layout
from clustersim.parallel.mesh import place
from tests.unit.config.samples import built


def reaches(*overrides: str, node_size: int = 8, domain_size: int = 8) -> dict[str, str]:
    strategy = built(*overrides).plan.strategy
    return {span.dimension: span.reach for span in rank_layout(strategy, node_size=node_size, domain_size=domain_size)}


def test_the_fastest_dimension_comes_first_with_stride_one() -> None:
    spans = rank_layout(built().plan.strategy, node_size=8, domain_size=8)

    assert spans == (
        MeshDimension(dimension="tp", degree=2, stride=1, reach="inside a node"),
        MeshDimension(dimension="cp", degree=1, stride=2, reach="no communication"),
        MeshDimension(dimension="dp", degree=4, stride=2, reach="inside a node"),
        MeshDimension(dimension="pp", degree=2, stride=8, reach="across the fabric"),
    )


def test_another_placement_changes_the_strides() -> None:
    assert reaches("strategy.placement=[pp, tp, cp, ep, dp]") == {
        "pp": "inside a node", "tp": "inside a node", "cp": "no communication", "dp": "across the fabric"
    }  # fmt: skip


def test_a_domain_of_several_nodes_holds_more() -> None:
    assert reaches(node_size=4, domain_size=16) == {
        "tp": "inside a node", "cp": "no communication", "dp": "inside a scale-up domain", "pp": "inside a scale-up domain"
    }  # fmt: skip


def test_a_domain_that_holds_all_ranks_has_no_border() -> None:
    assert reaches(node_size=4, domain_size=72)["dp"] == "inside a scale-up domain"


def test_a_group_that_crosses_a_border_somewhere_is_across_the_fabric() -> None:
    assert reaches(node_size=6, domain_size=6)["dp"] == "across the fabric"


@pytest.mark.parametrize("placement", ["[tp, cp, ep, dp, pp]", "[pp, dp, ep, cp, tp]", "[dp, tp, cp, ep, pp]"])
def test_the_strides_are_those_of_the_mesh(placement: str) -> None:
    strategy = built(f"strategy.placement={placement}").plan.strategy
    groups = place(strategy).groups("dp", 0)[0]
    span = next(span for span in rank_layout(strategy, node_size=8, domain_size=8) if span.dimension == "dp")

    assert groups.tolist() == [int(groups[0]) + index * span.stride for index in range(span.degree)]
