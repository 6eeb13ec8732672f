from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.nvls import lay_nvls_tree
from clustersim.collectives.pattern import Pattern, grouping
from clustersim.errors import DomainError
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import SCALE_UP_S, make_node


def laid(per_node: int, n_nodes: int, *members: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    chosen = members or tuple(range(per_node * n_nodes))
    return lay_nvls_tree(cluster, grouping(cluster, np.array([chosen], dtype=np.int64)))


def test_a_group_inside_one_domain_is_refused() -> None:
    with pytest.raises(DomainError, match="the group lies in one") as caught:
        laid(4, 1)

    assert caught.value.hint == "use nvls or ring"


def test_every_port_carries_the_tensor_and_the_share_of_its_rail() -> None:
    load = load_by_name(nodes_of(4, 2), laid(4, 2))

    assert {load for name, load in load.items() if "nvlink" in name} == {1.25}
    assert {load for name, load in load.items() if "nic" in name} == {0.25}


def test_the_steps_are_two_in_the_switch_and_the_tree_there_and_back() -> None:
    ((pipeline,),) = laid(4, 8).phases

    assert (pipeline.intra_steps, pipeline.inter_steps, pipeline.intra_latency_s) == (2, 6, SCALE_UP_S)


def test_a_member_that_is_alone_in_its_domain_needs_no_switch() -> None:
    load = load_by_name(nodes_of(4, 2), laid(4, 2, 0, 1, 2, 4))

    # One rail: the head of the first domain reads and writes all of it.
    assert {name: share for name, share in load.items() if "nvlink" in name} == {
        **{f"node0/gpu0/nvlink/{way}": 2.0 for way in ("up", "down")},
        **{f"node0/gpu{rank}/nvlink/{way}": 1.0 for rank in (1, 2) for way in ("up", "down")},
    }


def test_one_member_in_each_domain_takes_no_step_inside() -> None:
    ((pipeline,),) = laid(1, 4).phases

    assert (pipeline.intra_steps, pipeline.inter_steps) == (0, 4)


def test_switches_that_cannot_add_are_refused() -> None:
    cluster = build_cluster(make_node(), 2)

    with pytest.raises(DomainError, match="nvls_tree needs a switch that adds: box has none"):
        lay_nvls_tree(cluster, grouping(cluster, np.arange(16, dtype=np.int64)[None]))
