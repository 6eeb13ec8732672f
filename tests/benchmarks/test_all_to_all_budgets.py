"""Time to route the all-to-all of a thousand ranks, a million pairs."""

from __future__ import annotations

from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.collectives import ALGORITHMS
from clustersim.topology.cluster_wiring import build_cluster
from tests.benchmarks.claims import best_s, held
from tests.unit.collectives.execution import everybody
from tests.unit.topology.factories import make_fabric, make_node

BUDGETS_S: Final = {"direct": 0.8, "pairwise": 1.0, "hierarchical": 0.2}


@pytest.mark.parametrize("name", list(BUDGETS_S))
def test_the_all_to_all_of_a_thousand_ranks_is_laid_in_time(name: str, benchmark: BenchmarkFixture) -> None:
    cluster = build_cluster(make_node(), 128, make_fabric(nodes_per_leaf=32))
    group = everybody(cluster)

    benchmark.pedantic(ALGORITHMS["all_to_all"][name].lay, (cluster, group), rounds=5, warmup_rounds=1)

    assert held(benchmark, best_s(benchmark), BUDGETS_S[name])
