"""A plan that is written for a framework is read back as the same layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.apps.plan.flags import FRAMEWORKS
from clustersim.config.build import build
from clustersim.config.load import Scenario, load_scenario
from clustersim.parallel.training_plan import Strategy

MODEL = "llama3-8b"


def layout(strategy: Strategy) -> dict[str, object]:
    sharding = strategy.sharding
    return {
        **{
            key: getattr(strategy, key)
            for key in ("dp", "tp", "pp", "cp", "zero_stage", "virtual_stages", "recompute", "recompute_layers", "schedule", "offload")
        },
        "sharded over": sharding.degree,
        "stage_layers": strategy.stage_layers,
        "overlap": strategy.data_parallel.overlap,
    }


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        ("megatron", {"tp": 4, "pp": 2, "zero_stage": 1, "sequence_parallel": True, "recompute": "full"}),
        ("megatron", {"tp": 2, "pp": 4, "schedule": "interleaved_1f1b", "virtual_stages": 2, "recompute": "selective"}),
        ("megatron", {"tp": 2, "cp": 2, "zero_stage": 1, "data_parallel": {"overlap": False}}),
        ("megatron", {"tp": 2, "pp": 2, "stage_layers": [15, 17]}),
        ("megatron", {"pp": 2, "recompute": "full", "recompute_layers": 8}),
        ("torchtitan", {"tp": 2, "zero_stage": 3, "recompute": "full"}),
        ("torchtitan", {"pp": 2, "zero_stage": 3, "reshard_after_forward": True, "recompute": "none"}),
        ("torchtitan", {"zero_stage": 3, "shard_degree": 8, "recompute": "alternate"}),
        ("deepspeed", {"zero_stage": 2}),
        ("deepspeed", {"zero_stage": 3, "offload": ["optimizer"]}),
    ],
)
def test_a_written_plan_is_read_back(framework: str, strategy: dict[str, object], tmp_path: Path) -> None:
    plan = build(
        load_scenario(
            {
                "model": MODEL,
                "cluster": {"node": "dgx-h100", "nodes": 2},
                "training": {"global_batch_size": 64, "micro_batch_size": 1, "seq_length": 4096, "precision": "bf16", "kernels": "fused"},
                "strategy": strategy,
            }
        )
    ).plan
    path = tmp_path / "written"
    path.write_text(FRAMEWORKS[framework](plan).text, encoding="utf-8")

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", nodes=2, model=MODEL, overrides=("training.seq_length=4096",)))

    assert isinstance(found.scenario, Scenario)
    read = build(found.scenario).plan
    wanted = layout(plan.strategy)
    if framework == "deepspeed" and plan.strategy.offload.optimizer != "accelerator":
        wanted["offload"] = read.strategy.offload  # gradients go with the optimizer there
    # Without overlap Megatron-LM has one bucket, for which overlap does nothing, so that the plan leaves it at its default.
    assert layout(read.strategy) | {"overlap": found.scenario.spec.strategy.data_parallel.overlap} == wanted
    assert len({"--overlap-grad-reduce" in FRAMEWORKS[framework](each).text for each in (plan, read)}) == 1
    assert framework == "deepspeed" or read.training.kernels == "fused"
    assert (read.training.global_batch_size, read.training.micro_batch_size) == (64, 1)
    assert [key.key for key in found.keys if key.how == "unknown"] == []
