"""A folded replay, under a node symmetry where there is one, and one of every rank are the same, whatever is slow, degraded or uneven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.documents.text import Data
from clustersim.engine import folding
from clustersim.errors import ScenarioError

NOT_COMPARED = ("engine", "flags", "links", "busiest_links", "collectives", "scenario_hash")
"""Figures of the engine, and lists by class or by kind of link."""


def numbers(of: Data, name: str = "") -> Iterator[tuple[str, float]]:
    """Give all figures of a document by name."""
    if isinstance(of, dict):
        for key, value in of.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(of, list):
        for place, value in enumerate(of):
            yield from numbers(value, f"{name}[{place}]")
    elif isinstance(of, int | float):
        yield name, float(of)


def figures(scenario: dict[str, object], *, fold: bool) -> dict[str, float]:
    """Return every figure of a run that does not depend on how ranks are sorted into classes, and the bytes of every tier."""
    result = clustersim.run(scenario, fold=fold)
    document = result.to_dict()
    of_tiers = {f"bytes on {use.tier}": use.bytes for use in result.metrics.links}
    waited = 0.0 if result.metrics.steps is None else sum(each.waited_s for each in result.metrics.steps.waited_for)
    steps = document.pop("steps")
    if isinstance(steps, dict):
        steps = {key: value for key, value in steps.items() if key not in ("workers", "waited_for")}
    kept = {key: value for key, value in document.items() if key not in NOT_COMPARED}
    return {**dict(numbers(kept)), **dict(numbers(steps, "steps")), **of_tiers, "waited_s": waited}


@st.composite
def stragglers(draw: st.DrawFn, n_ranks: int) -> list[dict[str, object]]:
    slow = draw(st.lists(st.integers(0, n_ranks - 1), max_size=2, unique=True))
    return [{"ranks": rank, "slowdown": draw(st.sampled_from([1.1, 1.5]))} for rank in slow]


@st.composite
def links(draw: st.DrawFn, n_nodes: int) -> list[dict[str, object]]:
    things = draw(st.lists(st.sampled_from(["nic0", "nic1", "gpu2"]), max_size=2, unique=True))
    worn = st.sampled_from([{"fraction": 0.5}, {"fraction": 0.3}, {"latency": "5 us"}, {"state": "down"}])
    return [{"between": [f"node{draw(st.integers(0, n_nodes - 1))}/{thing}", "*"], **draw(worn)} for thing in things]


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, object]:
    n_nodes = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    models = [
        ("gpt2-xl", 1, 1),
        ("llama3-8b", 2, 1),
        ("llama3-8b", 8, 1),
        ("llama3.2-1b", 16, 1),
        ("qwen3-30b-a3b", 1, 4),
        ("mixtral-8x7b", 2, 2),
    ]
    model, tp, ep = draw(st.sampled_from(models))
    pp, cp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 1, 2]))
    dp, rest = divmod(8 * n_nodes, tp * pp * cp)
    assume(rest == 0 and dp * cp % ep == 0)
    cluster = {
        "node": draw(st.sampled_from(["dgx-h100", "dgx-a100-80g", "aws-p4d"])),
        "nodes": n_nodes,
        "fabric": {
            "topology": draw(st.sampled_from(["leaf_spine", "rail_optimized"])),
            "nodes_per_leaf": draw(st.sampled_from([1, 2, 3, 8])),
            "oversubscription": draw(st.sampled_from([1, 2, 3])),
            "routing": draw(st.sampled_from(["adaptive", "ecmp"])),
        },
        "stragglers": draw(stragglers(8 * n_nodes)),
        "links": draw(links(n_nodes)),
    }
    strategy: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "cp": cp,
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "interleaved_1f1b", "zb_h1"])) if pp > 1 else "1f1b",
        "zero_stage": draw(st.sampled_from([0, 1, 2, 3])),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "data_parallel": {"overlap": draw(st.booleans())},
        "placement": draw(st.permutations(["tp", "cp", "ep", "dp", "pp"])),
    }
    if strategy["schedule"] == "interleaved_1f1b":
        strategy["virtual_stages"] = 2
    training = {
        "global_batch_size": draw(st.sampled_from([1, 2, 4, 8])) * dp,
        "micro_batch_size": 1,
        "seq_length": 512,
        "precision": "bf16",
    }
    return {"version": 1, "name": "drawn", "model": model, "cluster": cluster, "training": training, "strategy": strategy}


CONTENDED: Final[dict[str, Any]] = {
    "version": 1,
    "name": "chaotic",
    "model": "llama3.2-1b",
    "cluster": {
        "node": "aws-p4d",
        "nodes": 8,
        "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 3, "oversubscription": 2, "routing": "adaptive"},
        "links": [{"between": ["node0/nic1", "*"], "fraction": 0.5}],
    },
    "training": {"global_batch_size": 64, "micro_batch_size": 1, "seq_length": 512, "precision": "bf16"},
    "strategy": {
        "tp": 2,
        "pp": 2,
        "schedule": "gpipe",
        "zero_stage": 1,
        "data_parallel": {"overlap": False},
        "placement": ["cp", "ep", "pp", "dp", "tp"],
    },
}
"""Tensor-parallel ranks on different nodes: collectives of many layers, which meet on a fabric that is slow in one place."""


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(scenario=scenarios())
def test_every_figure_of_a_folded_run_is_that_of_a_replay_of_every_rank(scenario: dict[str, object]) -> None:
    try:
        folded = figures(scenario, fold=True)
    except ScenarioError:
        assume(False)
        return
    with patch.object(folding, "LEAST_ROTATED", 0):
        by_rotation = figures(scenario, fold=True)

    apart = figures(scenario, fold=False)

    assert by_rotation == folded
    assert apart == pytest.approx(folded, rel=1e-9, abs=1e-9 * folded[".step_time_s"])


@st.composite
def own_paces(draw: st.DrawFn) -> dict[str, object]:
    """Draw workers with parameter servers that go at their own pace."""
    n_nodes = draw(st.integers(1, 4))
    staleness: dict[str, object] = {"mode": "ssp", "staleness": draw(st.integers(0, 3))}
    return {
        "version": 1,
        "name": "drawn",
        "model": {"num_hidden_layers": 3, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 8192},
        "cluster": {
            "node": draw(st.sampled_from(["dgx-a100-80g", "dgx-h100", "uber-p100-25g"])),
            "nodes": n_nodes,
            "accelerators_per_node": 4,
            "stragglers": draw(stragglers(4 * n_nodes)),
            "links": draw(links(n_nodes)),
        },
        "training": {"global_batch_size": 4 * n_nodes, "micro_batch_size": 1, "seq_length": 512, "precision": "fp16"},
        "strategy": {
            "data_parallel": {
                **draw(st.sampled_from([{"mode": "async"}, staleness])),
                "algorithm": "parameter_server",
                "servers": draw(st.integers(1, n_nodes)),
                "placement": draw(st.sampled_from(["dedicated", "colocated"])),
                "assignment": draw(st.sampled_from(["key_ranges", "round_robin", "greedy"])),
                "priority": draw(st.sampled_from(["layers", "none"])),
                "reduce_in_node": draw(st.booleans()),
                "overlap": draw(st.booleans()),
            }
        },
        "steps": draw(st.integers(1, 5)),
    }


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(scenario=own_paces())
def test_workers_that_behave_alike_at_their_own_pace_are_folded(scenario: dict[str, object]) -> None:
    try:
        folded = figures(scenario, fold=True)
    except ScenarioError:
        assume(False)
        return

    assert figures(scenario, fold=False) == pytest.approx(folded, rel=1e-12, abs=1e-12 * folded[".step_time_s"])  # round-off


@pytest.mark.slow
def test_folding_changes_no_bit_where_a_millionth_on_one_rank_changes_the_step() -> None:
    folded, apart = (clustersim.run(CONTENDED, fold=fold).step_time_s for fold in (True, False))
    perturbed = {**CONTENDED, "cluster": {**CONTENDED["cluster"], "stragglers": [{"ranks": [0], "slowdown": 1 + 1e-6}]}}

    assert folded == apart
    assert 1e-3 < abs(clustersim.run(perturbed).step_time_s / folded - 1) < 0.05
