"""A plan says the same in the words of a framework."""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import replace

import pytest

from clustersim.apps.plan.flags import FRAMEWORKS, FrameworkFiles, deepspeed, megatron, torchtitan
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError
from clustersim.parallel.training_plan import Plan

DENSE = {"tp": 2, "pp": 4, "cp": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2, "zero_stage": 1, "recompute": "full"}
STAGES = {"schedule": "1f1b", "virtual_stages": None, "cp": 1}
SPARSE = {"tp": 2, "ep": 8, "zero_stage": 3, "recompute": "full"}


def plan_of(model: str, strategy: dict[str, object], *, nodes: int = 4, precision: str = "bf16", batch: int = 64) -> Plan:
    training = {"global_batch_size": batch, "micro_batch_size": 2, "seq_length": 2048, "precision": precision}
    cluster = {"node": "dgx-h100", "nodes": nodes}
    document = {"version": 1, "name": "drawn", "model": model, "cluster": cluster, "training": training, "strategy": strategy}
    return build(load_scenario(document)).plan


def dense(**changes: object) -> Plan:
    return plan_of("llama3-8b", {**DENSE, **changes})


def sparse(**changes: object) -> Plan:
    return plan_of("mixtral-8x7b", {**SPARSE, **changes})


def lines(written: FrameworkFiles) -> list[str]:
    return written.text.splitlines()


def test_a_dense_layout_in_the_flags_of_megatron() -> None:
    assert lines(megatron(dense())) == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 4",
        "--context-parallel-size 2",
        "--cp-comm-type p2p",
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
    assert lines(megatron(sparse())) == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 1",
        "--context-parallel-size 1",
        "--micro-batch-size 2",
        "--global-batch-size 64",
        "--seq-length 2048",
        "--bf16",
        "--use-distributed-optimizer",
        "--use-megatron-fsdp",
        "--ckpt-format fsdp_dtensor",
        "--data-parallel-sharding-strategy optim_grads_params",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--recompute-granularity full",
        "--recompute-method uniform",
        "--recompute-num-layers 1",
        "--expert-model-parallel-size 8",
        "--moe-token-dispatcher-type alltoall",
        "--expert-tensor-parallel-size 2",
        "--sequence-parallel",
    ]


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"placement": ["tp", "cp", "ep", "pp", "dp"], "cp": 1}, "--use-tp-pp-dp-mapping"),
        ({"offload": ["optimizer"]}, "--optimizer-cpu-offload"),
        ({"offload": ["optimizer"]}, "--use-precision-aware-optimizer"),
        ({"zero_stage": 2, "pp": 1, "schedule": "1f1b", "virtual_stages": None}, "--data-parallel-sharding-strategy optim_grads"),
        ({"context_parallel": "ulysses"}, "--cp-comm-type a2a"),
        ({"shard_degree": 2}, "--num-distributed-optimizer-instances 2"),
    ],
)
def test_each_further_choice_has_its_flag_in_megatron(changes: dict[str, object], flag: str) -> None:
    assert flag in lines(megatron(dense(**changes)))
    assert flag not in lines(megatron(dense()))


def test_nothing_overlaps_in_megatron_where_it_does_not_in_the_plan() -> None:
    overlaps = {"--overlap-grad-reduce", "--overlap-param-gather"}

    assert overlaps <= set(lines(megatron(dense())))
    assert not overlaps & set(lines(megatron(dense(data_parallel={"overlap": False}))))
    assert overlaps & set(lines(megatron(dense(zero_stage=0)))) == {"--overlap-grad-reduce"}


def test_megatron_is_not_said_to_overlap_sends_of_stages_that_are_not_interleaved() -> None:
    noted = [
        any("interleaved stages alone" in note for note in megatron(dense(**STAGES, overlap_p2p=beside)).notes) for beside in (True, False)
    ]

    assert noted == [True, False]


def test_megatron_is_told_how_its_fsdp_wants_the_environment_and_a_search_prefers_plainer_layouts() -> None:
    assert (megatron(sparse()).burdens, megatron(dense()).burdens) == (("needs Megatron's FSDP",), ())
    assert any("CUDA_DEVICE_MAX_CONNECTIONS is not 1" in note for note in megatron(sparse()).notes)
    assert any("CUDA_DEVICE_MAX_CONNECTIONS=1" in note for note in megatron(dense()).notes)


@pytest.mark.parametrize(("precision", "flags"), [("fp16", ["--fp16"]), ("fp8", ["--bf16", "--fp8-format hybrid"]), ("fp32", [])])
def test_precisions_have_their_flags_in_megatron(precision: str, flags: list[str]) -> None:
    written = lines(megatron(plan_of("llama3-8b", DENSE, precision=precision)))

    assert [flag for flag in written if "fp" in flag or "bf16" in flag] == flags


def test_a_padded_vocabulary_has_its_flag_in_megatron() -> None:
    plan = dense()
    padded = replace(plan, training=plan.training.changed(vocabulary_multiple=64))

    assert "--make-vocab-size-divisible-by 64" in lines(megatron(padded))
    assert "--make-vocab-size-divisible-by" not in megatron(plan).text


def test_stages_of_unequal_numbers_of_layers_are_a_layout_of_megatron() -> None:
    plan = dense(virtual_stages=3, stage_layers=[2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2])

    written = megatron(plan).text

    words = shlex.split(written)
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et*2|t*3|t*3|t*3|t*3|t*3|t*3|t*3|t*3|t*2|t*2|t*2L"
    assert "--num-virtual-stages-per-pipeline-rank" not in written


def test_a_dense_layout_in_the_configuration_of_torchtitan() -> None:
    assert tomllib.loads(torchtitan(dense(zero_stage=2)).text) == {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"local_batch_size": 32, "global_batch_size": 64, "seq_len": 2048, "mixed_precision_param": "bfloat16"},
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
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
            "pipeline_parallel_microbatch_size": 2,
        },
        "compile": {"enable": True, "components": ["model"]},
        "activation_checkpoint": {"mode": "full"},
    }


def test_a_layout_of_experts_in_the_configuration_of_torchtitan() -> None:
    assert tomllib.loads(torchtitan(sparse()).text) == {
        "training": {"local_batch_size": 2, "global_batch_size": 64, "seq_len": 2048, "mixed_precision_param": "bfloat16"},
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
        "activation_checkpoint": {"mode": "full"},
    }


@pytest.mark.parametrize(
    ("strategy", "degrees"),
    [
        ({"zero_stage": 0}, (32, 1)),
        ({"zero_stage": 3}, (1, 32)),
        ({"zero_stage": 3, "shard_degree": 8}, (4, 8)),
        ({"zero_stage": 3, "cp": 2, "shard_degree": 16}, (2, 8)),
    ],
)
def test_replicas_and_shards_are_told_apart_in_torchtitan(strategy: dict[str, object], degrees: tuple[int, int]) -> None:
    parallelism = tomllib.loads(torchtitan(plan_of("llama3.2-1b", strategy)).text)["parallelism"]

    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == degrees


def test_torchtitan_keeps_gathered_parameters_where_the_layout_does() -> None:
    kept = plan_of("llama3.2-1b", {"zero_stage": 3, "reshard_after_forward": False})
    assert tomllib.loads(torchtitan(kept).text)["parallelism"]["fsdp_reshard_after_forward"] == "never"


def test_the_first_line_of_torchtitan_says_which_version_reads_it() -> None:
    written = torchtitan(sparse())

    assert lines(written)[0].startswith("# For torchtitan 0.2.2, the last release that reads TOML (")
    assert "238fa9953e4a" in lines(written)[0]
    assert any("torchtitan 0.3.0 takes" in note for note in written.notes)


def test_torchtitan_is_told_the_model_and_all_that_it_lacks_at_once() -> None:
    assert any("under [model], such as name =" in note for note in torchtitan(sparse()).notes)
    assert not any("[model]" in note for note in torchtitan(dense(zero_stage=2)).notes)
    with pytest.raises(ScenarioError, match="has no recompute selective") as caught:
        torchtitan(dense(recompute="selective"))
    assert "change it with -s strategy.recompute=none -s strategy.zero_stage=2, or" in str(caught.value)
    assert "nor has it sharding of optimizer states alone" in str(caught.value)


def test_fp8_is_a_converter_of_torchtitan() -> None:
    found = tomllib.loads(torchtitan(plan_of("mixtral-8x7b", SPARSE, precision="fp8")).text)

    assert found["model"] == {"converters": ["quantize.linear.float8", "quantize.grouped_mm.float8"]}
    assert found["quantize"] == {"grouped_mm": {"float8": {"fqns": ["experts"]}}}
    assert "model" not in tomllib.loads(torchtitan(sparse()).text)


def test_a_dense_layout_in_the_configuration_of_deepspeed() -> None:
    written = deepspeed(dense(**STAGES, offload=["optimizer"]))

    assert json.loads(written.text) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
        "zero_optimization": {"stage": 1, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}},
        "fp16": {"enabled": False},
        "bf16": {"enabled": True},
        "pipeline": {"activation_checkpoint_interval": 1},
    }
    given = "PipelineModule(layers, topology=PipeModelDataParallelTopology(num_pp=4, num_mp=2, num_dp=4))"
    assert any(given in note for note in written.notes)


def test_tensor_parallelism_without_stages_is_that_of_deepspeed_itself() -> None:
    written = deepspeed(dense(schedule="1f1b", virtual_stages=None, cp=1, pp=1))

    config = json.loads(written.text)
    assert config["tensor_parallel"] == {"autotp_size": 2}
    assert "pipeline" not in config
    assert any("recomputation has no key" in note for note in written.notes)
    assert any("DeepSpeed does not" in note for note in written.notes)


def test_deepspeed_says_where_experts_are_divided() -> None:
    written = deepspeed(sparse(recompute="none", zero_stage=1))

    assert json.loads(written.text)["zero_optimization"]["stage"] == 1
    assert any("deepspeed.moe.layer.MoE(..., ep_size=8, enable_expert_tensor_parallelism=True)" in note for note in written.notes)


@pytest.mark.parametrize(
    ("framework", "changes", "message"),
    [
        ("megatron", {"schedule": "zb_h1", "virtual_stages": None}, "has no schedule zb_h1"),
        ("megatron", {"recompute": "alternate"}, "has no recompute alternate"),
        ("megatron", {"zero_stage": 2}, "has no pipeline stages with its FSDP (zero_stage 2)"),
        ("megatron", {"placement": ["tp", "cp", "ep", "pp", "dp"]}, "different numbers of replicas"),
        ("megatron", {"zero_stage": 0, "offload": ["optimizer"]}, "an optimizer that is not sharded"),
        ("megatron", {"offload": ["optimizer", {"to": "nvme"}]}, "has no offload to nvme"),
        ("megatron", {"offload": ["optimizer", "activations"]}, "has no offload of activations"),
        ("torchtitan", {}, "zero_stage 1"),
        ("torchtitan", {"zero_stage": 0}, "has no replicas (zero_stage 0) beside"),
        ("torchtitan", {"zero_stage": 2, "offload": ["optimizer"]}, "has no offload"),
        ("torchtitan", {"zero_stage": 2, "sequence_parallel": False}, "without sequence parallelism"),
        ("torchtitan", {"zero_stage": 2, "placement": ["tp", "cp", "ep", "pp", "dp"]}, "placement"),
        ("torchtitan", {"zero_stage": 2, "stage_layers": [5, 3, 4, 4, 4, 4, 4, 4]}, "unequal"),
        ("deepspeed", {}, "interleaved_1f1b"),
        ("deepspeed", {"schedule": "1f1b", "virtual_stages": None}, "context parallelism"),
        ("deepspeed", {**STAGES, "zero_stage": 3}, "zero_stage 3"),
        ("deepspeed", {**STAGES, "pp": 1, "zero_stage": 3}, "tensor parallelism with zero_stage 3"),
        ("deepspeed", {**STAGES, "recompute": "selective"}, "selective"),
        ("deepspeed", {**STAGES, "offload": ["optimizer", {"to": "nvme"}]}, "offload to nvme with zero_stage 1"),
    ],
)
def test_what_a_framework_does_not_have_is_said(framework: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        FRAMEWORKS[framework](dense(**changes))

    assert message in str(caught.value)
    assert "--only" in str(caught.value)


def test_deepspeed_has_no_experts_with_sharded_parameters() -> None:
    with pytest.raises(ScenarioError, match="expert parallelism with zero_stage 3"):
        deepspeed(sparse(recompute="none", tp=1))


def test_deepspeed_has_no_key_for_layers_to_recompute_and_none_for_adapters() -> None:
    some, plan = dense(**STAGES, recompute_layers=2), dense(**STAGES)

    for changed, setting in ((some, "recompute_layers"), (replace(plan, training=plan.training.changed(lora_rank=8)), "lora_rank")):
        with pytest.raises(ScenarioError, match=f"{setting}=null"):
            deepspeed(changed)


@pytest.mark.parametrize(("framework", "precision"), [("deepspeed", "fp8"), ("torchtitan", "fp16"), ("torchtitan", "tf32")])
def test_a_precision_that_a_framework_does_not_have_is_not_written_as_another(framework: str, precision: str) -> None:
    with pytest.raises(ScenarioError, match=precision) as caught:
        FRAMEWORKS[framework](plan_of("llama3.2-1b", {"zero_stage": 3}, precision=precision))

    assert "training.precision=bf16" in str(caught.value)


def test_a_model_of_images_is_no_model_of_megatron() -> None:
    training = {"global_batch_size": 64, "micro_batch_size": 8}
    document = {"version": 1, "name": "drawn", "model": "resnet-50", "cluster": {"node": "dgx-h100", "nodes": 1}, "training": training}

    with pytest.raises(ScenarioError, match="Megatron-LM has no resnet-50"):
        megatron(build(load_scenario(document)).plan)
