"""A plan that is written for a framework or a scheduler is read back as the same layout."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.apps.plan.exports import TRAINING, written
from clustersim.config.build import build
from clustersim.config.load import Scenario, load_scenario
from clustersim.errors import DomainError, ScenarioError
from clustersim.parallel.needs import CONDITIONS
from clustersim.parallel.shard import local_model
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, SHARDS_PARAMETERS, Plan

DEGREES: Final = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "expert_tp",
    "zero_stage",
    "virtual_stages",
    "schedule",
    "sequence_parallel",
    "offload",
    "stage_layers",
)
UNSAID: Final = {"deepspeed": ("recompute", "sequence_parallel", "expert_tp")}
"""Settings without a key in a framework's file; its notes say where they are given."""


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    """Return a job on two nodes of eight accelerators."""
    experts = draw(st.booleans())
    pp = draw(st.sampled_from((1, 2, 4)))
    schedule = draw(st.sampled_from(("1f1b", "interleaved_1f1b", "gpipe"))) if pp > 1 else None
    strategy: dict[str, object] = {
        "tp": draw(st.sampled_from((1, 2, 4))),
        "pp": pp,
        "cp": draw(st.sampled_from((1, 1, 2))),
        "zero_stage": draw(st.sampled_from((0, 1, 2, 3))),
        "recompute": draw(st.sampled_from(("none", "selective", "alternate", "full"))),
        "sequence_parallel": draw(st.booleans()),
        "data_parallel": {"overlap": draw(st.booleans())},
        "offload": draw(st.sampled_from(([], [], ["optimizer"], ["optimizer", "gradients", "parameters"]))),
    }
    if schedule is not None:
        strategy |= {"schedule": schedule, "virtual_stages": 2 if schedule == "interleaved_1f1b" else 1}
    if schedule == "1f1b" and pp == 2:
        strategy |= {"stage_layers": draw(st.sampled_from((None, [15, 17])))}
    if strategy["zero_stage"] == 3:
        strategy |= {"reshard_after_forward": draw(st.sampled_from((None, True))), "shard_degree": draw(st.sampled_from((None, 4)))}
    if experts:
        strategy |= {"ep": draw(st.sampled_from((1, 2, 4))), "etp": 1}
    return {
        "model": "mixtral-8x7b" if experts else "llama3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 2},
        "training": {
            "global_batch_size": draw(st.sampled_from((64, 128))),
            "micro_batch_size": draw(st.sampled_from((1, 2))),
            "seq_length": 4096,
            "precision": draw(st.sampled_from(("bf16", "fp16", "fp8"))),
        },
        "strategy": strategy,
    }


def overlaps(plan: Plan) -> bool:
    """Return whether reductions overlap: with one bucket none does, so that the setting does nothing."""
    gradients = plan.strategy.data_parallel
    whole = plan.strategy.changed(data_parallel=gradients.changed(overlap=False))
    holds, _ = CONDITIONS["several buckets"]
    return gradients.overlap and holds(local_model(plan.model, plan.training, whole), whole)


def said(plan: Plan, target: str) -> dict[str, object]:
    """Return the settings of a plan that a file of the target holds."""
    found: dict[str, object] = {key: getattr(plan.strategy, key) for key in DEGREES}
    if plan.strategy.replicas == 1:
        # One replica holds all states at any stage; a framework that offloads them asks for one.
        found["zero_stage"] = 0
    elif plan.strategy.zero_stage == SHARDS_PARAMETERS and plan.strategy.reshard_after_forward is False:
        # Parameters that stay after they were gathered once.
        found["zero_stage"] = SHARDS_GRADIENTS
    if target == "deepspeed":
        # Gradients go with the optimizer from stage 2 on.
        found["offload"] = (plan.strategy.offload.optimizer, plan.strategy.offload.parameters)
    found |= {"recompute": plan.strategy.recompute, "sharded over": plan.strategy.sharding.degree}
    found |= {"overlap": overlaps(plan)} if plan.strategy.replicas > 1 and target != "torchtitan" else {}
    training = plan.training
    found |= {key: getattr(training, key) for key in ("global_batch_size", "micro_batch_size", "seq_length", "precision")}
    return {key: value for key, value in found.items() if key not in UNSAID.get(target, ())}


@pytest.mark.slow
@pytest.mark.parametrize("target", TRAINING)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(job=jobs())
def test_a_written_plan_is_read_back(target: str, job: dict[str, object]) -> None:
    try:
        scenario = load_scenario(job)
        plan = build(scenario).plan
    except DomainError:
        reject()
    try:
        text = written(scenario, target).text
    except ScenarioError as error:
        # The target has no words for the layout; any other error is a defect.
        if error.field != "--as":
            raise
        reject()
    # Stages and experts of DeepSpeed are given in Python.
    assume(target != "deepspeed" or (plan.strategy.pp == 1 and plan.strategy.ep == 1))
    given_by_hand = [] if target != "deepspeed" else ["training.seq_length=4096", f"strategy.recompute={plan.strategy.recompute}"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "written"
        path.write_text(text, encoding="utf-8")

        found = import_files(
            [str(path)], ImportOptions(cluster="dgx-h100", nodes=2, model=str(job["model"]), overrides=tuple(given_by_hand))
        )

    assert isinstance(found.scenario, Scenario)
    assert said(build(found.scenario).plan, target) == said(plan, target)
    assert [key.key for key in found.keys if key.how == "unknown"] == []
