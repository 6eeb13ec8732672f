"""The lower bound in the report of a run."""

from __future__ import annotations

import pytest

import clustersim
from clustersim.apps.run.bound import evaluator_of
from clustersim.config.build import build
from clustersim.config.load import load_scenario

BASE = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "seq_length": 2048, "launch_overhead": 1.0},
    "strategy": {"tp": 8},
}


def test_the_sentence_names_computation_where_it_binds() -> None:
    bounds = clustersim.run("llama3-8b-8xh100").bounds

    assert bounds.binding == "compute"
    assert bounds.sentence.startswith("no step of this layout is shorter than ")
    assert "; computation alone: " in bounds.sentence


def test_the_sentence_names_tensor_parallel_collectives_and_their_links() -> None:
    bounds = clustersim.run({**BASE, "cluster": {"node": "pcie-a100-80g", "nodes": 1}, "strategy": {"tp": 8, "overlap_tp": "none"}}).bounds

    assert bounds.binding == "tp"
    assert "; tensor-parallel collectives over " in bounds.sentence


def test_the_document_has_the_bound_in_seconds() -> None:
    found = clustersim.run(BASE).to_dict()["bounds"]

    assert isinstance(found, dict)
    assert {"bound_s", "path_s", "link_s", "peak_s", "bound_fraction", "binding", "binding_s", "parts", "sentence"} == set(found)


def test_a_check_may_ask_about_the_bound() -> None:
    result = clustersim.run({**BASE, "checks": ["bounds.bound_s > 1 hour"]})

    assert not result.ok


def test_slow_ranks_do_not_lift_the_bound_above_the_step() -> None:
    slow = clustersim.run({**BASE, "cluster": {**BASE["cluster"], "stragglers": [{"ranks": 3, "slowdown": 2.0}]}})

    assert slow.bounds.bound_s <= slow.step_time_s


@pytest.mark.parametrize("key", ["training.global_batch_size=64", "training.seq_length=4096"])
def test_more_work_takes_more_at_least(key: str) -> None:
    assert clustersim.run(BASE, set=[key]).bounds.bound_s > clustersim.run(BASE).bounds.bound_s


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
def test_closed_forms_do_not_depend_on_the_plans_that_were_bounded_before(model: str) -> None:
    scenario = {"version": 1, "model": model, "cluster": {"node": "dgx-h100", "nodes": 2}, "training": {"global_batch_size": 32}}
    kinds = [
        build(load_scenario({**scenario, "strategy": {"tp": 2, "pp": 2, "recompute": each}})) for each in ("full", "none", "selective")
    ]
    together = evaluator_of(kinds[0])

    found = [(together.mean_s(built.plan), together.passes_s(built.plan)) for built in kinds]

    assert found == [(evaluator_of(built).mean_s(built.plan), evaluator_of(built).passes_s(built.plan)) for built in kinds]
    assert len({passes_s for _, passes_s in found}) == len(kinds)
