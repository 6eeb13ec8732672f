"""Keys of jobs whose report and scenario must say the same, and the generation of attention that jobs name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.apps.importing.transforms import UnreadableError, number
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, at, written

FILES = Path(__file__).parent / "files"
TWO = ImportOptions(cluster="dgx-h100", nodes=2)


def imported(tmp_path: Path, name: str, was: str, now: str, asked: ImportOptions = TWO) -> tuple[object, str]:
    text = (FILES / name).read_text(encoding="utf-8")
    assert was in text
    found = import_files([written(tmp_path, text.replace(was, now), name)], asked)
    notes = [key.note or "" for key in found.keys if key.to == "training.attention"]
    return at(found.data, "training.attention"), notes[-1]


@pytest.mark.parametrize(
    ("said", "attention"),
    [
        ("attn_implementation: flash_attention_2", "flash_2"),
        ("flash_attention: true", "flash_2"),
        ("attn_implementation: sdpa", "flash_2"),
        ("attn_implementation: flash_attention_3", "flash"),
        ("attn_implementation: kernels-community/flash-attn3", "flash"),
        ("attn_implementation: eager", "unfused"),
    ],
)
def test_attention_has_the_generation_that_a_job_names(tmp_path: Path, said: str, attention: str) -> None:
    found, _ = imported(tmp_path, "axolotl-hsdp-tp.yaml", "attn_implementation: flash_attention_2", said)

    assert found == attention


def test_attention_without_constants_on_a_machine_is_its_fastest_and_told(tmp_path: Path) -> None:
    asked = replace(TWO, cluster="dgx-b200")

    found = imported(tmp_path, "axolotl-hsdp-tp.yaml", "lr_scheduler", "lr_scheduler", asked)

    assert found == ("flash", "nothing is known of flash_2 on b200-sxm: the fastest there")


@pytest.mark.parametrize(
    ("said", "attention"), [("flash_attention_2", "flash_2"), ("fa2", "flash_2"), ("flash_attention_3", "flash"), ("sdpa", "flash_2")]
)
def test_trainers_on_transformers_name_it_alike(tmp_path: Path, said: str, attention: str) -> None:
    command = (
        "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --max_seq_length 8192"
        f" --bf16 --attn_implementation {said}\n"
    )

    found = import_files([written(tmp_path, command, "job.sh")], replace(TWO, nodes=1))

    assert (found.framework, at(found.data, "training.attention")) == ("transformers", attention)


def test_sequence_parallelism_without_tensor_parallelism_is_off_for_that_reason(tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 --nnodes 1 {MEGATRON} --tensor-model-parallel-size 1 --sequence-parallel\n"

    found = import_files([written(tmp_path, text, "job.sh")], ON_H100)
    told = [(key.how, key.value, key.note) for key in found.keys if key.to == "strategy.sequence_parallel"]

    assert told == [("read", True, None), ("derived", False, "tp is 1")]


def test_a_count_that_a_script_hands_on_has_an_effect(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=16\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 {MEGATRON} --global-batch-size 256\n"

    found = import_files([written(tmp_path, text, "job.sh")], ImportOptions(cluster="dgx-h100"))

    assert [(key.key, key.how, key.value) for key in found.keys if "nodes" in key.key and key.key[0] != "c"] == [
        ("sbatch.--nodes", "read", 16),
        ("launcher.--nnodes", "read", 16),
    ]
    assert at(found.data, "cluster.nodes") == 16


def test_a_value_with_several_meanings_is_shown_as_it_stands(tmp_path: Path) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    text += '[compile]\ncomponents = ["model", "loss"]\n'

    found = import_files([written(tmp_path, text, "job.toml")], TWO)

    assert [key.value for key in found.keys if key.key == "compile.components"] == [["model", "loss"]]


NANOTRON = "parallelism: {dp: 2, pp: 1, tp: 4}\ntokens: {micro_batch_size: 1, sequence_length: 2048}\nmodel:\n  model_config:\n"
DIMENSIONS = (
    "hidden_size: 5120, num_attention_heads: 40, num_key_value_heads: 8, num_hidden_layers: 4, vocab_size: 202048,"
    " intermediate_size: 8192, intermediate_size_mlp: 16384, num_local_experts: 16, num_experts_per_tok: 1"
)
NEOX = (
    "{pipe_parallel_size: 1, model_parallel_size: 1, num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 512,\n"
    "padded_vocab_size: 50304, train_micro_batch_size_per_gpu: 4, zero_optimization: {stage: 0}, precision: bfloat16}\n"
)
PRIMUS = "modules:\n  pre_trainer:\n    framework: %s\n    model: %s.yaml\n    overrides:\n      %s\n"
AXOLOTL = "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 2048\nmicro_batch_size: 1\noptimizer: adamw_8bit\n"
OUMI = "{model: {model_name: Qwen/Qwen3-4B, model_max_length: 512, torch_dtype_str: %s}, training: {per_device_train_batch_size: 2}}"
OLMO = "model: {d_model: 512, n_heads: 8, n_layers: 4, mlp_ratio: 4, vocab_size: 50304, max_sequence_length: 512, block_type: moe}\n"
MOSAIC = (
    "model: {name: mpt_causal_lm, d_model: 512, n_heads: 8, n_layers: 4, vocab_size: 50368,\n"
    "  ffn_config: {ffn_type: mb_dmoe, moe_num_experts: 8%s}}\n"
)
BATCH = "global_train_batch_size: 64\ndevice_train_microbatch_size: 2\nmax_seq_len: 512\nfsdp_config: {sharding_strategy: FULL_SHARD}\n"
TESTED = (
    "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --seq-length: 1024\n  --vocab-size: 50257\n"
    "  --max-position-embeddings: 1024\n  --micro-batch-size: 4\n  --global-batch-size: 128\n  --bf16: true\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{NANOTRON}    text_config: {{{DIMENSIONS}}}\n",
            {"model.intermediate_size": 16384, "model.moe_intermediate_size": 8192, "model.num_shared_experts": 1, "model.num_experts": 16},
        ),
        (NEOX, {"strategy.zero_stage": 1}),
        (NEOX.replace("bfloat16", "fp16"), {"strategy.zero_stage": 0}),
        (
            PRIMUS
            % (
                "megatron",
                "llama2_70B",
                "tensor_model_parallel_size: 8\n      lora: {enabled: true, dim: 16, target_modules: [linear_qkv]}",
            ),
            {"training.lora_rank": 16, "training.lora_layers": ["qkv"]},
        ),
        (
            PRIMUS % ("megatron", "gpt_oss_20B", "global_batch_size: 64\n      tokenizer_model: meta-llama/Llama-3.1-8B"),
            {"model.vocab_size": 128256},
        ),
        (
            PRIMUS % ("maxtext", "mixtral_8x7B", "{ici_fsdp_parallelism: 1, dcn_data_parallelism: -1, ici_expert_parallelism: -1}"),
            {"strategy.ep": 8, "cluster.nodes": 2},
        ),
        (f"{AXOLOTL}expert_parallel_size: 2\ndp_shard_size: 8\n", {"strategy.ep": 2, "cluster.nodes": 2}),
        (f"{AXOLOTL}context_parallel: {{size: 4}}\n", {"strategy.cp": 4}),
        (
            f"{AXOLOTL}deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\n",
            {
                "strategy.preset": "deepspeed_zero3",
                "strategy.offload": ["optimizer", "gradients", "parameters"],
                "training.moment_precision": "fp32",
            },
        ),
        (OUMI % "f32", {"training.precision": "fp32"}),
        (OUMI % "half", {"training.precision": "fp16"}),
        (OUMI % "auto", {"training.precision": "bf16"}),
        (
            "{model_name_or_path: Qwen/Qwen3-4B, per_device_train_batch_size: 2, cutoff_len: 20, max_length: 20}",
            {"training.seq_length": 20},
        ),
        (f"{OLMO}{BATCH}", {"model.num_experts": 8, "model.num_experts_per_tok": 2}),
        (f"{MOSAIC % ''}{BATCH}", {"model.gated_mlp": False}),
        (f"{MOSAIC % ', mlp_type: glu'}{BATCH}", {"model.gated_mlp": True}),
        (
            "model_args: {model_name_or_path: Qwen/Qwen3-30B-A3B, max_seq_length: 4096, model_config: {use_fp8_mlp: true}}\n"
            "trainer_args: {per_device_train_batch_size: 1, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 1,\n"
            "  expert_model_parallel_size: 16, bf16: true}\n",
            {"training.precision": "fp8", "strategy.etp": 1, "strategy.ep": 16},
        ),
        (
            f'{TESTED}  --recompute-granularity: selective\n  --recompute-modules: "[moe_act layernorm]"\n  --bert-no-binary-head: true\n',
            {"strategy.recompute_modules": ["activations", "norms"], "model.causal": False},
        ),
        (f"{TESTED}  --decoder-seq-length: 4096\n  --img-h: 336\n", {"training.seq_length": 4096}),
    ],
)
def test_parts_of_a_framework_are_read_where_it_keeps_them(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    found = import_files([written(tmp_path, text, "job.yaml")], TWO).data

    assert {key: at(found, key) for key in expected} == expected


def test_processes_behind_mason_are_those_of_a_node(tmp_path: Path) -> None:
    command = (
        "python mason.py --num_nodes 4 --gpus 8 -- accelerate launch --num_machines 4 --num_processes 8 --config_file ds/zero3.yaml sft.py"
        " --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 --max_seq_length 4096 --bf16\n"
    )

    found = import_files([written(tmp_path, command, "job.sh")], ImportOptions(cluster="dgx-h100")).data

    assert (at(found, "cluster.nodes"), at(found, "strategy.preset")) == (4, "deepspeed_zero3")


def test_the_file_of_deepspeed_counts_before_its_name(tmp_path: Path) -> None:
    job = written(tmp_path, f"{AXOLOTL}deepspeed: zero2.json\n", "job.yaml")
    own = written(tmp_path, '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', "zero2.json")

    assert [at(import_files(files, TWO).data, "strategy.preset") for files in ([job], [job, own])] == ["deepspeed_zero2", "deepspeed_zero3"]


@pytest.mark.parametrize("value", [10**400, float("nan"), "1" * 400])
def test_what_no_size_can_be_is_no_number(value: int | float | str) -> None:
    with pytest.raises(UnreadableError):
        number(value)


@pytest.mark.parametrize(("model", "flavour", "lost"), [("llama3", "8B", []), ("deepseek_v3", "671B", ["alternate"])])
def test_kept_exchanges_of_experts_are_said_to_be_repeated(tmp_path: Path, model: str, flavour: str, lost: list[str]) -> None:
    recompute = "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'\n"
    text = f"[model]\nname = '{model}'\nflavor = '{flavour}'\n[training]\nlocal_batch_size = 1\n{recompute}"

    found = import_files([written(tmp_path, text, "job.toml")], replace(ON_H100, nodes=64))

    assert [key.value for key in found.keys if key.how == "not_modelled"] == lost


@pytest.mark.parametrize("slip", ["--hiden-size", "--hiden_size"])
def test_what_is_missing_may_stand_under_a_misspelt_key(tmp_path: Path, slip: str) -> None:
    file = written(tmp_path, MEGATRON.replace("--hidden-size", slip))

    with pytest.raises(ScenarioError, match=rf"no file says the model: .*; {slip} in line 1: did you mean '--hidden-size'"):
        import_files([file], ON_H100)


def test_an_accelerator_in_place_of_a_cluster_is_told_the_nodes_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no cluster or node 'h100'") as caught:
        import_files([written(tmp_path, MEGATRON)], ImportOptions(cluster="h100", nodes=1))

    assert "dgx-h100" in str(caught.value.hint)


def test_a_configuration_of_a_model_alone_is_no_job(tmp_path: Path) -> None:
    file = written(tmp_path, '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}', "config.json")

    with pytest.raises(ScenarioError, match="is a model"):
        import_files([file], ON_H100)


def test_a_given_rate_of_requests_needs_no_kind_of_arrival(tmp_path: Path) -> None:
    asked = ImportOptions(cluster="dgx-h100", overrides=("requests.rate=6 /s",))

    with pytest.raises(ScenarioError, match=": no file says the number of requests"):
        import_files([written(tmp_path, "vllm serve meta-llama/Meta-Llama-3-8B", "job.sh")], asked)


@pytest.mark.parametrize("key", ["mlp_ratio", "mlp_hidden_size"])
def test_a_width_that_no_model_has_is_refused(tmp_path: Path, key: str) -> None:
    text = (FILES / "olmo-1b.yaml").read_text(encoding="utf-8").replace("mlp_ratio: 8", f"{key}: {'9' * 400}")

    with pytest.raises(ScenarioError):
        import_files([written(tmp_path, text, "job.yaml")], TWO)


def test_a_duration_that_no_job_has_is_left_out(tmp_path: Path) -> None:
    text = (FILES / "foundry-mpt-7b.yaml").read_text(encoding="utf-8").replace("63900ba", f"{'9' * 400}ba")

    assert at(import_files([written(tmp_path, text, "job.yaml")], TWO).data, "training.tokens") is None
