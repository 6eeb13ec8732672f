"""A plan says the same in the words of a framework."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import pytest

from clustersim.errors import ScenarioError
from clustersim.scenario.build import build
from clustersim.scenario.load import load_scenario
from clustersim.strategy.plan import Plan
from clustersim.studies.planning.flags import FRAMEWORKS, deepspeed, megatron, torchtitan

DENSE = {"tp": 2, "pp": 4, "cp": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2, "zero_stage": 1, "recompute": "full"}
SPARSE = {"tp": 2, "ep": 8, "zero_stage": 3, "recompute": "selective"}


def plan_of(model: str, strategy: dict[str, object], *, nodes: int = 4, precision: str = "bf16", batch: int = 64) -> Plan:
    training = {"global_batch_size": batch, "micro_batch_size": 2, "seq_length": 2048, "precision": precision}
    cluster = {"node": "dgx-h100", "nodes": nodes}
    document = {"version": 1, "name": "drawn", "model": model, "cluster": cluster, "training": training, "strategy": strategy}
    return build(load_scenario(document)).plan


def dense(**changes: object) -> Plan:
    return plan_of("llama3-8b", {**DENSE, **changes})


def sparse(**changes: object) -> Plan:
    return plan_of("mixtral-8x7b", {**SPARSE, **changes})


def test_a_dense_layout_in_the_flags_of_megatron() -> None:
    assert megatron(dense()).splitlines() == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 4",
        "--context-parallel-size 2",
        "--micro-batch-size 2",
        "--global-batch-size 64",
        "--seq-length 2048",
        "--bf16",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--recompute-granularity full",
        "--recompute-method uniform",
        "--recompute-num-layers 1",
        "--sequence-parallel",
        "--num-virtual-stages-per-pipeline-rank 2",
    ]


def test_a_layout_of_experts_in_the_flags_of_megatron() -> None:
    assert megatron(sparse()).splitlines() == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 1",
        "--context-parallel-size 1",
        "--micro-batch-size 2",
        "--global-batch-size 64",
        "--seq-length 2048",
        "--bf16",
        "--use-distributed-optimizer",
        "--use-megatron-fsdp",
        "--data-parallel-sharding-strategy optim_grads_params",
        "--recompute-granularity selective",
        "--expert-model-parallel-size 8",
        "--expert-tensor-parallel-size 2",
        "--sequence-parallel",
    ]


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"placement": ["tp", "cp", "ep", "pp", "dp"]}, "--use-tp-pp-dp-mapping"),
        ({"offload": ["optimizer"]}, "--optimizer-cpu-offload"),
        ({"zero_stage": 2}, "--data-parallel-sharding-strategy optim_grads"),
    ],
)
def test_each_further_choice_has_its_flag_in_megatron(changes: dict[str, object], flag: str) -> None:
    assert flag in megatron(dense(**changes)).splitlines()
    assert flag not in megatron(dense()).splitlines()


@pytest.mark.parametrize(("precision", "flags"), [("fp16", ["--fp16"]), ("fp8", ["--bf16", "--fp8-format hybrid"]), ("fp32", [])])
def test_precisions_have_their_flags_in_megatron(precision: str, flags: list[str]) -> None:
    written = megatron(plan_of("llama3-8b", DENSE, precision=precision)).splitlines()

    assert [flag for flag in written if "fp" in flag or "bf16" in flag] == flags


def test_a_padded_vocabulary_has_its_flag_in_megatron() -> None:
    plan = dense()
    padded = replace(plan, training=replace(plan.training, vocabulary_multiple=64))

    assert "--make-vocab-size-divisible-by 64" in megatron(padded).splitlines()
    assert "--make-vocab-size-divisible-by" not in megatron(plan)


def test_stages_of_unequal_numbers_of_layers_are_a_layout_of_megatron() -> None:
    plan = dense(virtual_stages=3, stage_layers=[2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2])

    written = megatron(plan)

    assert '--pipeline-model-parallel-layout "Et*2|t*3|t*3|t*3|t*3|t*3|t*3|t*3|t*3|t*2|t*2|t*2L"' in written.splitlines()
    assert "--num-virtual-stages-per-pipeline-rank" not in written


def test_a_dense_layout_in_the_configuration_of_torchtitan() -> None:
    assert tomllib.loads(torchtitan(dense(zero_stage=2))) == {
        "training": {"local_batch_size": 32, "global_batch_size": 64, "seq_len": 2048},
        "parallelism": {
            "data_parallel_replicate_degree": 1,
            "data_parallel_shard_degree": 2,
            "fsdp_reshard_after_forward": "never",
            "tensor_parallel_degree": 2,
            "context_parallel_degree": 2,
            "expert_parallel_degree": 1,
            "pipeline_parallel_degree": 4,
            "pipeline_parallel_schedule": "Interleaved1F1B",
            "pipeline_parallel_layers_per_stage": 4,
            "pipeline_parallel_microbatch_size": 2,
        },
        "activation_checkpoint": {"mode": "full"},
    }


def test_a_layout_of_experts_in_the_configuration_of_torchtitan() -> None:
    assert tomllib.loads(torchtitan(sparse())) == {
        "training": {"local_batch_size": 2, "global_batch_size": 64, "seq_len": 2048},
        "parallelism": {
            "data_parallel_replicate_degree": 1,
            "data_parallel_shard_degree": 16,
            "fsdp_reshard_after_forward": "always",
            "tensor_parallel_degree": 2,
            "context_parallel_degree": 1,
            "expert_parallel_degree": 8,
            "expert_tensor_parallel_degree": 2,
            "pipeline_parallel_degree": 1,
        },
        "activation_checkpoint": {"mode": "selective", "selective_ac_option": "op"},
    }


def test_replicas_are_not_sharded_in_torchtitan() -> None:
    parallelism = tomllib.loads(torchtitan(dense(zero_stage=0)))["parallelism"]

    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == (2, 1)


def test_a_dense_layout_in_the_configuration_of_deepspeed() -> None:
    plan = dense(schedule="1f1b", virtual_stages=None, cp=1, offload=["optimizer"])

    assert json.loads(deepspeed(plan)) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
        "zero_optimization": {"stage": 1, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}},
        "fp16": {"enabled": False},
        "bf16": {"enabled": True},
        "tensor_parallel": {"autotp_size": 2},
        "pipeline": {"stages": 4, "activation_checkpoint_interval": 1},
    }


def test_deepspeed_counts_samples_of_all_ranks() -> None:
    config = json.loads(deepspeed(dense(schedule="1f1b", virtual_stages=None, cp=1)))

    replicas = 32 // (2 * 4)
    assert config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * replicas


@pytest.mark.parametrize(
    ("framework", "changes", "message"),
    [
        ("megatron", {"schedule": "zb_h1", "virtual_stages": None}, "has no schedule zb_h1"),
        ("megatron", {"recompute": "alternate"}, "has no recompute alternate"),
        ("torchtitan", {}, "zero_stage 1"),
        ("torchtitan", {"zero_stage": 2, "placement": ["tp", "cp", "ep", "pp", "dp"]}, "placement"),
        ("torchtitan", {"zero_stage": 2, "stage_layers": [5, 3, 4, 4, 4, 4, 4, 4]}, "unequal"),
        ("deepspeed", {}, "interleaved_1f1b"),
        ("deepspeed", {"schedule": "1f1b", "virtual_stages": None}, "context parallelism"),
        ("deepspeed", {"schedule": "1f1b", "virtual_stages": None, "cp": 1, "zero_stage": 3}, "zero_stage 3"),
        ("deepspeed", {"schedule": "1f1b", "virtual_stages": None, "cp": 1, "recompute": "selective"}, "selective"),
    ],
)
def test_what_a_framework_does_not_have_is_said(framework: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        FRAMEWORKS[framework](dense(**changes))

    assert message in str(caught.value)
    assert "--only" in str(caught.value)


def test_deepspeed_says_where_experts_are_divided() -> None:
    with pytest.raises(ScenarioError, match="ep_size"):
        deepspeed(sparse(recompute="none"))
