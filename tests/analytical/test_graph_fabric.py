"""Graphs of switches against fabrics of the same cables, and against the cut between two leaves."""

from __future__ import annotations

import pytest

from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.engine.passes import Passes
from tests.unit.topology.factories import bisection_bytes_per_s

PORT_BYTES_PER_S = 50e9
"""One port of the leaf switch of a DGX H100, 400 Gbit/s."""


def scenario(fabric: dict[str, Data]) -> dict[str, Data]:
    return {
        "model": "llama3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 4, "fabric": fabric},
        "training": {"global_batch_size": 32, "micro_batch_size": 1, "seq_length": 8192, "precision": "bf16"},
        "strategy": {"tp": 8, "zero_stage": 3},
    }


def graph(*uplinks: int) -> dict[str, Data]:
    """Return leaves of two nodes with so many cables, each to a spine of its own."""
    leaves: list[Data] = [
        {"switch": f"leaf{leaf}", "nodes": [2 * leaf, 2 * leaf + 1], "to": {f"spine{spine}": 1 for spine in range(count)}}
        for leaf, count in enumerate(uplinks)
    ]
    return {"topology": "graph", "graph": leaves}


def step_time_s(fabric: dict[str, Data]) -> float:
    return run_built(build(load_scenario(scenario(fabric)))).step_time_s


def test_a_graph_of_a_leaf_spine_fabric_takes_as_long_as_it() -> None:
    assert step_time_s(graph(16, 16)) == pytest.approx(step_time_s({"topology": "leaf_spine", "nodes_per_leaf": 2}), rel=1e-9)


def test_the_leaf_with_fewer_uplinks_is_the_cut() -> None:
    cluster = build(load_scenario(scenario(graph(16, 3)))).cluster

    assert bisection_bytes_per_s(cluster) == pytest.approx(3 * PORT_BYTES_PER_S)


def test_ranks_of_an_uneven_graph_fold_to_the_same_time() -> None:
    built = build(load_scenario(scenario(graph(5, 3))))

    assert run_built(built, passes=Passes(fold=False)).step_time_s == pytest.approx(run_built(built).step_time_s, rel=1e-9)
