"""The table of all algorithms."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import grouping
from clustersim.hardware.library_costs import CollectiveOp
from tests.unit.collectives.execution import load_of, nodes_of
from tests.unit.topology.factories import make_fabric


@pytest.mark.parametrize("op", list(ALGORITHMS))
def test_a_row_is_found_by_the_name_it_bears(op: CollectiveOp) -> None:
    assert [algorithm.name for algorithm in ALGORITHMS[op].values()] == list(ALGORITHMS[op])


@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("all_reduce", {"ring", "tree", "halving_doubling", "hierarchical", "nvls", "nvls_tree", "sharp"}),
        ("all_gather", {"ring", "recursive", "pat", "nvls"}),
        ("reduce_scatter", {"ring", "recursive", "pat", "nvls"}),
    ],
)
def test_reductions_and_gathers_have_these_algorithms(op: CollectiveOp, names: set[str]) -> None:
    assert set(ALGORITHMS[op]) >= names


@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op in ("all_reduce", "all_gather", "reduce_scatter") for name in ALGORITHMS[op] if name != "nvls"]
)
def test_groups_that_lie_differently_carry_together_what_they_carry_alone(op: CollectiveOp, name: str) -> None:
    cluster = nodes_of(5, 3, fabric=make_fabric("leaf_spine", nodes_per_leaf=1))
    groups = [[0, 1, 2, 5], [3, 4, 6, 7], [8, 10, 11, 12]]

    together = load_of(cluster, ALGORITHMS[op][name].lay(cluster, grouping(cluster, np.array(groups, dtype=np.int64))))

    alone = [load_of(cluster, ALGORITHMS[op][name].lay(cluster, grouping(cluster, np.array([group], dtype=np.int64)))) for group in groups]
    np.testing.assert_allclose(together, np.sum(alone, axis=0), rtol=1e-12)
