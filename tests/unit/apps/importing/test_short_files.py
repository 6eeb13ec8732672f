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
)


@pytest.mark.parametrize("line", FILES, ids=lambda line: line.framework)
def test_a_short_file_is_read(line: Line, tmp_path: Path) -> None:
    assert_read(line, tmp_path)
