"""Low-rank adapters as frameworks ask for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.importing.importing import import_files
from clustersim.documents.text import Data
from tests.unit.apps.importing.found import at
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, written

AXOLOTL = "base_model: NousResearch/Llama-2-7b-hf\nsequence_len: 512\nmicro_batch_size: 4\nbf16: true\n"
TORCHTUNE = (
    "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\nbatch_size: 2\ntokenizer: {max_seq_len: 2048}\ndtype: bf16\n"
)
TRAINER = "model_name_or_path: meta-llama/Llama-2-7b-hf\nper_device_train_batch_size: 2\ncutoff_len: 1024\nbf16: true\n"
FOUNDRY = (
    "train_loader: {name: text}\nmax_seq_len: 2048\nglobal_train_batch_size: 16\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\n"
    "model:\n  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf\n"
)
BRIDGE = (
    "model:\n  _target_: megatron.bridge.models.llama.Llama3ModelProvider8B\n  seq_length: 4096\n  num_layers: 32\n  hidden_size: 4096\n"
    "  num_attention_heads: 32\n  ffn_hidden_size: 14336\n  vocab_size: 128256\n  num_query_groups: 8\n  gated_linear_unit: true\n"
    "train: {global_batch_size: 32, micro_batch_size: 1}\n"
)
LITGPT = (
    "checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf\nprecision: bf16-true\nlora_r: 8\n"
    "train: {global_batch_size: 16, micro_batch_size: 2, max_seq_length: 512}\n"
)
ALL = ["q", "k", "v", "output", "gate", "up", "down"]


@pytest.mark.parametrize(
    ("text", "rank", "layers", "frozen"),
    [
        (AXOLOTL + "adapter: lora\nlora_r: 32\nlora_target_linear: true\n", 32, ALL, None),
        (AXOLOTL + "adapter: qlora\nlora_r: 16\n", 16, ["q", "v"], "nf4"),
        (AXOLOTL + "adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, down_proj]\nload_in_4bit: true\n", 8, ["q", "down"], "nf4"),
        (AXOLOTL + "adapter:\nlora_r: 32\nlora_target_linear: true\n", None, None, None),
        (TORCHTUNE + "  # nothing\n", None, None, None),
        (
            TORCHTUNE.replace("_8b\n", "_8b\n  lora_rank: 64\n  lora_attn_modules: [q_proj, output_proj]\n  apply_lora_to_mlp: true\n"),
            64,
            ["q", "output", "gate", "up", "down"],
            None,
        ),
        (TRAINER + "finetuning_type: lora\nlora_target: all\n", 8, ALL, None),
        (TRAINER + "finetuning_type: lora\nlora_rank: 16\nlora_target: q_proj,v_proj\nquantization_bit: 4\n", 16, ["q", "v"], "nf4"),
        (TRAINER + "finetuning_type: full\nlora_rank: 16\n", None, None, None),
        (TRAINER + "use_peft: true\nlora_r: 16\nload_in_4bit: true\n", 16, ["q", "v"], "nf4"),
        (FOUNDRY + "  peft_config: {r: 16, peft_type: LORA, target_modules: [q_proj, v_proj]}\n", 16, ["q", "v"], None),
        (BRIDGE + "peft: {_target_: megatron.bridge.peft.lora.LoRA}\n", 32, ["qkv", "output", "gate_up", "down"], None),
        (BRIDGE + "peft: {_target_: megatron.bridge.peft.lora.LoRA, dim: 8, target_modules: [linear_qkv]}\n", 8, ["qkv"], None),
        (LITGPT, 8, ["q", "v"], None),
        (LITGPT + "lora_query: false\nlora_key: true\nlora_projection: true\n", 8, ["k", "v", "output"], None),
        (LITGPT + "lora_query: true\nlora_key: true\nlora_value: true\nlora_projection: true\nlora_mlp: true\n", 8, ALL, None),
    ],
)
def test_adapters_of_a_framework_are_read(
    tmp_path: Path, text: str, rank: int | None, layers: list[Data] | None, frozen: str | None
) -> None:
    found = import_files([written(tmp_path, text, "job.yaml")], ON_H100)

    assert tuple(at(found.data, f"training.{key}") for key in ("lora_rank", "lora_layers", "frozen_precision")) == (rank, layers, frozen)


@pytest.mark.parametrize(
    ("provider", "model", "dropout"), [("llama.Llama3ModelProvider8B", "llama3-8b", None), ("gpt_provider.GPTModelProvider", None, True)]
)
def test_the_class_of_a_model_of_megatron_bridge_says_what_no_key_does(
    tmp_path: Path, provider: str, model: str | None, dropout: bool | None
) -> None:
    """Positions, biases, tied embeddings, normalisation and dropout, without which it would be no shipped model."""
    found = import_files([written(tmp_path, BRIDGE.replace("llama.Llama3ModelProvider8B", provider), "job.yaml")], ON_H100).data

    assert (found["model"] if isinstance(found["model"], str) else None, at(found, "model.dropout")) == (model, dropout)


@pytest.mark.parametrize(("kind", "how"), [("full", "read"), ("lora", "read"), ("adalora", "not_modelled")])
@pytest.mark.parametrize(
    "text",
    [
        f"megatron sft --train_type {{}} {MEGATRON.partition(' ')[2]} --num-query-groups 4",
        "torchrun a.py --train_type {} --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --max_length 512",
    ],
)
def test_adapters_of_swift_that_are_not_modelled_are_said(tmp_path: Path, text: str, kind: str, how: str) -> None:
    found = import_files([written(tmp_path, text.format(kind))], ON_H100)

    assert [key.how for key in found.keys if key.key == "--train_type"] == [how]
    assert (at(found.data, "training.lora_rank") is not None) is (kind == "lora")


def test_an_adapter_of_the_head_is_said_to_be_left_out(tmp_path: Path) -> None:
    found = import_files([written(tmp_path, LITGPT + "lora_head: true\n", "job.yaml")], ON_H100)

    assert [key.how for key in found.keys if key.key == "lora_head"] == ["not_modelled"]


@pytest.mark.parametrize(
    ("comment", "nodes", "replicas"),
    [
        ("#   tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device", 1, 1),
        ("#   tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device", None, 1),
        ("#   tune run --nproc_per_node 2 lora_finetune_distributed --config llama3_1/8B_lora", 1, 8),
        ("# For one device use 8B_lora_single_device.yaml", 1, 8),
    ],
)
def test_a_recipe_that_a_comment_names_counts_its_accelerators(tmp_path: Path, comment: str, nodes: int | None, replicas: int) -> None:
    text = f"{comment}\n{TORCHTUNE}gradient_accumulation_steps: 4\n"

    found = import_files([written(tmp_path, text, "job.yaml")], replace(ON_H100, nodes=nodes))

    assert at(found.data, "training.global_batch_size") == 2 * 4 * replicas
