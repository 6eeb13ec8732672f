"""Short configurations of jobs, and what they leave to the defaults of their framework."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.apps.importing.test_command_lines import Line, assert_read

FILES: Final = (
    Line(
        "axolotl",
        "base_model: NousResearch/Llama-2-7b-hf\nsequence_len: 4096\nmicro_batch_size: 2\nbatch_size: 8\n"
        "optimizer: adamw_bnb_8bit\nbf16: auto\n",
        {"training.moment_precision": "fp8", "training.optimizer_kernels": "fused", "training.global_batch_size": 64},
        nodes=1,
    ),
    Line(
        "transformers",
        "model_name_or_path: Qwen/Qwen3-4B\nfinetuning_type: full\ncutoff_len: 2048\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 8\nbf16: true\nfp8: true\n",
        {"strategy.recompute": "full", "training.precision": "fp8", "training.global_batch_size": 64},
        nodes=1,
    ),
    Line(
        "levanter",
        "model:\n  type: gpt2\n  hidden_dim: 1536\n  num_layers: 48\n  num_heads: 24\ntrainer:\n  mp: p=f32,c=bfloat16\n"
        "  train_batch_size: 256\n  per_device_parallelism: 4\n  model_axis_size: 2\n",
        {
            "model.intermediate_size": 6144,
            "model.vocab_size": 50257,
            "training.seq_length": 1024,
            "training.micro_batch_size": 4,
            "strategy.tp": 2,
            "strategy.recompute": "full",
        },
        nodes=2,
    ),
    Line(
        "levanter",
        "data:\n  tokenizer: meta-llama/Llama-2-7b-hf\nmodel:\n  type: llama\ntrainer:\n  train_batch_size: 64\n  mp: f32\n",
        {"model": "llama-7b", "training.seq_length": 2048, "training.micro_batch_size": 8, "training.precision": "fp32"},
        nodes=1,
    ),
    Line(
        "transformers",
        '{"model_name_or_path": "mistralai/Mistral-7B-v0.1", "bf16": true, "per_device_train_batch_size": 1, "max_seq_length": 4096,'
        ' "gradient_accumulation_steps": 8, "fsdp": "full_shard auto_wrap offload", "fsdp_config": {"activation_checkpointing": true}}',
        {"strategy.recompute": "full", "strategy.offload": ["optimizer", "gradients", "parameters"], "strategy.preset": "pytorch_fsdp"},
        nodes=1,
    ),
    Line(
        "torchtune",
        "resources: {accelerators: H100:8}\nnum_nodes: 2\nrun: |\n  tune run --nproc_per_node 8 --nnodes 2 full_finetune_distributed"
        " --config llama3_1/70B_full batch_size=2 gradient_accumulation_steps=4 tokenizer.max_seq_len=4096 tensor_parallel_dim=8\n",
        {"model": "llama3.1-70b", "strategy.tp": 8, "cluster.nodes": 2, "training.global_batch_size": 16},
    ),
    Line(
        "llm_foundry",
        "image: mosaicml/llm-foundry:2.2\ncompute: {gpus: 64, gpu_type: a100_80gb}\ncommand: composer train/train.py p.yaml\nparameters:\n"
        "  max_seq_len: 2048\n  model: {name: mpt_causal_lm, d_model: 4096, n_heads: 32, n_layers: 32, vocab_size: 50368}\n"
        "  optimizer: {name: decoupled_adamw}\n  global_train_batch_size: 1024\n  device_train_microbatch_size: 4\n"
        "  precision: amp_bf16\n  fsdp_config: {sharding_strategy: FULL_SHARD}\n",
        {"cluster.node": "dgx-h100", "cluster.nodes": 8, "training.global_batch_size": 1024},
    ),
)


@pytest.mark.parametrize("line", FILES, ids=lambda line: line.framework)
def test_a_short_file_is_read(line: Line, tmp_path: Path) -> None:
    assert_read(line, tmp_path)
