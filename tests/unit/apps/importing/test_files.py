"""Files of frameworks: the framework that is recognised, and the scenario that comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.apps.importing.machines import labelled_machines
from clustersim.apps.importing.reading import read_contents, read_raw
from clustersim.apps.importing.table import framework_names, load_table
from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import Scenario
from clustersim.documents.text import Data
from tests.unit.apps.importing.found import at

FILES: Final = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Case:
    """Files of one job, the options that they need, and values of the scenario."""

    files: str
    framework: str
    expected: dict[str, Data]
    cluster: str | None = None
    nodes: int | None = None
    set_: tuple[str, ...] = ()
    model: str | None = None


CASES: Final = (
    Case(
        "megatron-llama3-8b.args.txt",
        "megatron_lm",
        {
            "model": "llama3-8b",
            "cluster.nodes": 1,
            "training.precision": "fp8",
            "training.fp8_parameters": True,
            "training.global_batch_size": 128,
            "training.seq_length": 8192,
            "training.gradient_precision": "same",
            "strategy.zero_stage": 1,
            "strategy.data_parallel.overlap": True,
        },
        cluster="dgx-h100",
    ),
    Case(
        "megatron-deepseek-proxy.yaml",
        "megatron_lm",
        {
            "model.num_hidden_layers": 14,
            "model.kv_lora_rank": 512,
            "model.first_k_dense_replace": 3,
            "model.num_experts": 64,
            "model.shared_expert_intermediate_size": 2048,
            "model.num_nextn_predict_layers": 1,
            "strategy.tp": 2,
            "strategy.pp": 4,
            "strategy.ep": 16,
            "strategy.etp": 1,
            "strategy.virtual_stages": 2,
            "strategy.stage_layers": [2, 2, 2, 2, 2, 2, 1, 1],
            "strategy.dispatch": "per_node",
            "training.vocabulary_multiple": 3232,
        },
        cluster="dgx-h100",
        nodes=16,
        set_=("model.vocab_size=256000",),
    ),
    Case(
        "megatron-v100.log",
        "megatron_lm",
        {
            "model.num_hidden_layers": 48,
            "model.vocab_size": 50257,
            "model.head_dim": 224,
            "cluster.node": "dgx1-v100-32g",
            "cluster.nodes": 8,
            "cluster.accelerators_per_node": 4,
            "training.precision": "fp16",
            "training.attention": "unfused",
            "strategy.tp": 4,
            "strategy.pp": 8,
            "strategy.recompute": "full",
            "strategy.preset": "megatron_lm",
        },
    ),
    Case(
        "megatron-deepspeed-v100.log",
        "megatron_lm",
        {"cluster.nodes": 8, "strategy.preset": "deepspeed_3d", "strategy.zero_stage": 0, "strategy.pp": 16},
        cluster="dgx1-v100-32g",
    ),
    Case(
        "nemo-gpt3-175b.yaml",
        "nemo",
        {
            "model": "gpt3-175b",
            "cluster.nodes": 128,
            "strategy.tp": 4,
            "strategy.pp": 8,
            "strategy.virtual_stages": 6,
            "strategy.sequence_parallel": True,
            "training.precision": "bf16",
            "training.global_batch_size": 2048,
        },
        cluster="dgx-h100",
    ),
    Case(
        "torchtitan-llama3-70b.toml",
        "torchtitan",
        {
            "model": "llama3-70b",
            "training.micro_batch_size": 8,
            "training.global_batch_size": 64,
            "strategy.tp": 8,
            "strategy.recompute": "full",
            "strategy.preset": "torchtitan",
        },
        cluster="dgx-a100-80g",
        nodes=8,
    ),
    Case(
        "deepspeed-zero3-offload.json",
        "deepspeed",
        {
            "strategy.preset": "deepspeed_zero3",
            "strategy.offload": ["optimizer", "gradients", "parameters"],
            "training.precision": "fp16",
            "training.global_batch_size": 16,
        },
        cluster="dgx-h100",
        nodes=2,
        model="llama3-8b",
        set_=("training.seq_length=4096", "training.micro_batch_size=1"),
    ),
    Case(
        "accelerate-tp-hsdp.yaml",
        "accelerate",
        {"cluster.nodes": 1, "strategy.tp": 2, "strategy.shard_degree": 2, "strategy.preset": "pytorch_fsdp"},
        cluster="dgx-h100",
        model="llama3-8b",
        set_=("training.seq_length=4096", "training.micro_batch_size=1"),
    ),
    Case(
        "axolotl-hsdp-tp.yaml",
        "axolotl",
        {"model": "llama3.1-8b", "cluster.nodes": 2, "strategy.shard_degree": 4, "strategy.tp": 2, "training.fused_loss": True},
        cluster="dgx-h100",
    ),
    Case(
        "neox-llama2-7b.yml neox-train.yml",
        "gpt_neox",
        {"model": "llama2-7b", "strategy.zero_stage": 1, "strategy.recompute": "full", "training.global_batch_size": 128},
        cluster="dgx-a100-40g",
        nodes=4,
        set_=("model.vocab_size=32000",),
    ),
    Case(
        "foundry-mpt-7b.yaml",
        "llm_foundry",
        {
            "model.intermediate_size": 16384,
            "training.micro_batch_size": 8,
            "training.loss_metrics": 2,
            "training.tokens": "134008012800",
            "strategy.recompute": "full",
        },
        cluster="dgx-a100-80g",
        nodes=4,
    ),
    Case(
        "maxtext-run.yml maxtext-model.yml",
        "maxtext",
        {"model": "llama3.1-405b", "training.seq_length": 4096, "training.global_batch_size": 512, "strategy.recompute": "full"},
        cluster="dgx-h100",
        nodes=64,
    ),
    Case(
        "nanotron-moe.yaml",
        "nanotron",
        {
            "model.num_experts": 8,
            "model.num_shared_experts": 1,
            "model.sliding_window": 20,
            "cluster.accelerators_per_node": 2,
            "training.global_batch_size": 6,
            "strategy.zero_stage": 0,
        },
        cluster="dgx-h100",
    ),
    Case(
        "olmo-1b.yaml",
        "olmo",
        {"model.intermediate_size": 8192, "model.normalization_vectors": 0, "model.vocab_size": 50304, "training.micro_batch_size": 8},
        cluster="dgx-h100",
        nodes=8,
    ),
    Case(
        "paddle-llama3-8b.json",
        "paddle",
        {"model": "llama3-8b", "strategy.zero_stage": 2, "strategy.tp": 2, "strategy.recompute": "none", "training.global_batch_size": 64},
        cluster="dgx-h100",
        nodes=1,
    ),
    Case(
        "primus-llama3.1-70b.yaml",
        "primus",
        {"model": "llama3.1-70b", "strategy.zero_stage": 3, "strategy.recompute_layers": 80, "training.precision": "bf16"},
        cluster="mi300x-oam",
        nodes=1,
    ),
    Case(
        "torchtune-70b.yaml",
        "torchtune",
        {"model": "llama3.1-70b", "training.fused_loss": True, "strategy.recompute": "full", "training.micro_batch_size": 2},
        cluster="dgx-a100-80g",
        nodes=1,
        set_=("training.seq_length=2048",),
    ),
)


def paths_of(case: Case) -> list[str]:
    return [str(FILES / name) for name in case.files.split()]


def imported(case: Case) -> Imported:
    return import_files(paths_of(case), ImportOptions(cluster=case.cluster, nodes=case.nodes, model=case.model, overrides=case.set_))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.files)
def test_a_file_yields_the_scenario_that_it_describes_with_every_key_known_and_in_the_report_once(case: Case) -> None:
    contents = [read_contents(read_raw(path), path) for path in paths_of(case)]
    entries = [*(entry for each in [*contents, *labelled_machines(contents)] for entry in each.entries)]

    found = imported(case)

    assert found.framework == case.framework
    assert {key: at(found.data, key) for key in case.expected} == case.expected
    assert [key.key for key in found.keys if key.how == "unknown"] == []
    reported = sorted((key.file, key.key, key.line or 0) for key in found.keys if key.file is not None)
    assert reported == sorted((entry.file, entry.key, entry.line or 0) for entry in entries)


def test_every_framework_has_a_sample_or_extends_one() -> None:
    """Those of serving have theirs in a module of their own, and others are in short texts."""
    serving = {name for name in framework_names() if load_table(name).file.job == "serving"}

    assert set(framework_names()) - {case.framework for case in CASES} == {
        "flagscale",
        "levanter",
        "litgpt",
        "oumi",
        "megatron_bridge",
        "primus_maxtext",
        "primus_torchtitan",
        "transformers",
        *serving,
    }


def test_the_steps_of_logs_are_predicted_within_15_percent() -> None:
    """The stated goal for imported logs, whose machine is known by its accelerators alone: the median over logs."""
    errors: list[float] = []
    for case in CASES:
        found = imported(case) if case.files.endswith(".log") else None
        if found is not None and found.measured is not None and isinstance(found.scenario, Scenario):
            errors.append(abs(run_built(build(found.scenario)).step_time_s / found.measured.step_time_s - 1.0))

    assert len(errors) == 2
    assert median(errors) < 0.15
