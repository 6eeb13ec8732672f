from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.nvls import NVLS, lay_nvls
from clustersim.collectives.pattern import grouping
from clustersim.collectives.ring import RingOp
from clustersim.errors import DomainError
from clustersim.hardware.catalog import load_node
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import SCALE_UP_S, make_node


@pytest.mark.parametrize(
    ("op", "up", "down", "steps"),
    [("all_reduce", 1.25, 1.25, 2), ("all_gather", 0.25, 1.0, 1), ("reduce_scatter", 1.0, 0.25, 1)],
)
def test_the_owner_of_a_part_reads_it_from_all_or_writes_it_to_all(op: RingOp, up: float, down: float, steps: int) -> None:
    cluster = nodes_of(8, 1)

    pattern = lay_nvls(op, cluster, grouping(cluster, np.array([[0, 2, 5, 7]], dtype=np.int64)))

    load = load_by_name(cluster, pattern)
    assert load == {f"node0/gpu{rank}/nvlink/{way}": share for rank in (0, 2, 5, 7) for way, share in (("up", up), ("down", down))}
    ((switched,),) = pattern.phases
    assert (switched.intra_steps, switched.inter_steps, switched.intra_latency_s) == (steps, 0, SCALE_UP_S)


def test_groups_in_different_domains_run_beside_each_other() -> None:
    cluster = nodes_of(4, 2)

    pattern = lay_nvls("all_reduce", cluster, grouping(cluster, np.arange(8, dtype=np.int64).reshape(2, 4)))

    assert set(load_by_name(cluster, pattern).values()) == {1.25}


def test_a_rack_of_many_nodes_is_one_domain() -> None:
    cluster = nodes_of(4, 3, nodes_per_domain=3)

    pattern = lay_nvls("all_gather", cluster, grouping(cluster, np.arange(12, dtype=np.int64)[None]))

    assert len(load_by_name(cluster, pattern)) == 24


@pytest.mark.parametrize("op", list(NVLS))
def test_a_switch_that_cannot_add_is_refused_by_name(op: RingOp) -> None:
    cluster = build_cluster(load_node("dgx-a100-80g"), 1)

    with pytest.raises(DomainError) as caught:
        NVLS[op].lay(cluster, grouping(cluster, np.array([[0, 1]], dtype=np.int64)))

    assert "nvls needs a switch that adds: dgx-a100-80g has none" in str(caught.value)
    assert "use ring or tree" in str(caught.value)
    assert caught.value.path == ("cluster", "kinds", 0, "scale_up", "in_network_reduction")


def test_a_group_over_two_domains_is_sent_to_the_tree() -> None:
    cluster = nodes_of(4, 2)

    with pytest.raises(DomainError, match=r"inside one NVSwitch domain, and a group spans 2.*nvls_tree"):
        lay_nvls("all_reduce", cluster, grouping(cluster, np.array([[0, 1], [2, 4]], dtype=np.int64)))


def test_a_mesh_has_no_switch_to_add_in() -> None:
    node = make_node("full_mesh")
    cluster = build_cluster(replace(node, scale_up=replace(node.scale_up, in_network_reduction=True)), 1)

    with pytest.raises(DomainError, match="without a switch"):
        lay_nvls("all_reduce", cluster, grouping(cluster, np.array([[0, 1]], dtype=np.int64)))
