"""Models as frameworks describe them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.importing.importing import import_files
from clustersim.documents.text import Data
from tests.unit.apps.importing.test_command_lines import Line, assert_read
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, at, written


@pytest.mark.parametrize(
    ("flags", "position"),
    [
        (" --position-embedding-type yarn", "yarn"),
        (" --position-embedding-type yarn --use-rotary-position-embeddings", "yarn"),
        (" --use-rotary-position-embeddings", "rope"),
    ],
)
def test_yarn_of_megatron_is_kept(tmp_path: Path, flags: str, position: str) -> None:
    assert at(import_files([written(tmp_path, MEGATRON + flags)], ON_H100).data, "model.position_embedding") == position


@pytest.mark.parametrize("option", ["--data-path", "--num-layers", "--tp-comm-overlap-cfg"])
def test_an_option_with_the_output_of_a_command_is_unknown(tmp_path: Path, option: str) -> None:
    found = import_files([written(tmp_path, f"{MEGATRON} {option} <(echo 2)")], ON_H100)

    assert [key.how for key in found.keys if key.key == option and key.note and "is not run" in key.note] == ["unknown"]


STARCODER = """parallelism: {dp: 4, pp: 1, tp: 2}
model: {dtype: bfloat16, model_config: {is_starcoder2_config: true, grouped_query: true, num_kv_heads: 4, hidden_size: 4608,
  num_attention_heads: 36, num_hidden_layers: 32, vocab_size: 49152, max_position_embeddings: 4096, resid_pdrop: 0}}
tokens: {sequence_length: 4096, micro_batch_size: 4, batch_accumulation_per_replica: 2}
"""
DOCKED = """docker run --gpus all "${IMAGE}" bash -lc '
cat > conf/q.toml <<TOML
[model]
name = "qwen3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 4096
TOML
torchrun --nproc_per_node=8 -m torchtitan.experiments.ft.train --job.config_file conf/q.toml
'
"""
INLINE = """base_model: Qwen/Qwen3-8B
sequence_len: 4096
micro_batch_size: 1
gradient_accumulation_steps: 4
deepspeed: {zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}, gradient_accumulation_steps: auto}
"""
ZERO = """model: {model_name: Qwen/Qwen3-8B, model_max_length: 4096}
training: {trainer_type: TRL_SFT}
deepspeed: {enable_deepspeed: %s, zero_stage: %s, overlap_comm: true, offload_optimizer: {device: cpu}}
"""
SHARDED: dict[str, Data] = {"strategy.preset": "deepspeed_zero3", "strategy.offload": ["optimizer", "gradients"]}


@pytest.mark.parametrize(
    "line",
    [
        Line("nanotron", STARCODER, {"model.intermediate_size": 4 * 4608, "model.gated_mlp": False, "model.num_key_value_heads": 4}),
        Line("torchtitan", DOCKED, {"model": "qwen3-8b", "training.seq_length": 4096}, nodes=1),
        Line("axolotl", INLINE, {"strategy.preset": "deepspeed_zero3", "training.global_batch_size": 32}, nodes=1),
        Line(
            "oumi",
            "oumi distributed torchrun -m oumi train -c t.yaml --model.model_name Qwen/Qwen3-8B --model.model_max_length 4096",
            {"model": "qwen3-8b"},
            nodes=1,
        ),
        Line("oumi", ZERO % ("true", "ZERO_3"), {**SHARDED, "strategy.data_parallel.overlap": True}, nodes=1),
        Line("oumi", ZERO % ("true", '"3"'), SHARDED, nodes=1),
        Line("oumi", ZERO % ("false", "ZERO_3"), {"strategy.preset": "pytorch_ddp", "strategy.offload": None}, nodes=1),
    ],
    ids=lambda line: line.framework,
)
def test_what_a_framework_says_in_a_form_of_its_own_is_read(line: Line, tmp_path: Path) -> None:
    assert_read(line, tmp_path)
