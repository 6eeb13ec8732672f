from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.pattern import Pattern, grouping
from clustersim.collectives.recursive import GatherOp, lay_pat
from tests.unit.collectives.execution import load_by_name, nodes_of
from tests.unit.topology.factories import make_fabric


def laid(op: GatherOp, per_node: int, n_nodes: int) -> Pattern:
    cluster = nodes_of(per_node, n_nodes)
    return lay_pat(op, cluster, grouping(cluster, np.arange(per_node * n_nodes, dtype=np.int64)[None]))


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("n_nodes", "steps"), [(2, 1), (5, 3), (8, 3), (9, 4), (1000, 10)])
def test_all_distances_are_in_use_at_once_after_few_steps(op: GatherOp, n_nodes: int, steps: int) -> None:
    ((spread,),) = laid(op, 1, n_nodes).phases

    assert (spread.intra_steps, spread.inter_steps) == (0, steps)


def test_steps_inside_a_domain_count_as_such() -> None:
    ((spread,),) = laid("all_gather", 8, 1).phases

    assert (spread.intra_steps, spread.inter_steps) == (3, 0)


def test_a_leaf_sends_what_its_ranks_send_beyond_it() -> None:
    cluster = nodes_of(1, 8, fabric=make_fabric("leaf_spine", nodes_per_leaf=4))

    load = load_by_name(cluster, lay_pat("all_gather", cluster, grouping(cluster, np.arange(8, dtype=np.int64)[None])))

    # Of distance 4 all four ranks leave with a part, of distance 2 two with two, of distance 1 one with four.
    assert load["leaf0/up"] == (4 * 1 + 2 * 2 + 1 * 4) / 8
