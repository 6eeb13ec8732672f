"""Command lines of each framework, as users start their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.documents.text import Data
from tests.unit.apps.importing.found import at


@dataclass(frozen=True)
class Line:
    """A text, the framework that it is of, and values of its scenario."""

    framework: str
    text: str
    expected: dict[str, Data]
    nodes: int | None = None


LAYERS: Final = (
    "torchrun --nproc_per_node 8 --nnodes 1 pretrain_hybrid.py --hidden-size 512 --num-attention-heads 8 --seq-length 1024"
    " --vocab-size 32000 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 64 --bf16 --num-layers 6 "
)
LINES: Final = (
    Line(
        "megatron_lm",
        f"{LAYERS} --num-experts 8 --hybrid-layer-pattern *-*E*E/*E",
        {"model.num_hidden_layers": 3, "model.first_k_dense_replace": 1},
    ),
    Line(
        "megatron_lm",
        f"{LAYERS.replace('--vocab-size 32000', '')} --tokenizer-type Llama2Tokenizer --hybrid-override-pattern '*-|*-|*-'",
        {"model.vocab_size": 32000, "model.num_hidden_layers": 3},
    ),
    Line(
        "torchtitan",
        "NGPU=4 CONFIG_FILE=./train_configs/llama3_8b.toml ./run_train.sh --training.local_batch_size 2 --training.seq_len 4096"
        " --activation_checkpoint.mode full",
        {"model": "llama3-8b", "cluster.nodes": 1, "training.global_batch_size": 8, "strategy.recompute": "full"},
    ),
    Line(
        "torchtitan",
        "torchrun --nproc_per_node=8 --nnodes=4 -m torchtitan.train --job.config_file x/llama3_8b.toml --training.local_batch_size 2"
        " --training.seq_len 8192 --parallelism.tensor_parallel_degree=2 --compile.enable_async_tensor_parallel",
        {"model": "llama3-8b", "cluster.nodes": 4, "training.global_batch_size": 32, "strategy.tp": 2, "strategy.overlap_tp": "async_tp"},
    ),
    Line(
        "torchtitan",
        '[model]\nflavor = "8B"\n[training]\nlocal_batch_size = 1\ndata_parallel_degree = -1\n',
        {"model": "llama3-8b", "strategy.recompute": "full", "strategy.recompute_layers": 16},
        nodes=1,
    ),
    Line(
        "torchtitan",
        '{"model_spec": {"name": "llama3", "flavor": "70B"}, "training": {"seq_len": 8192, "local_batch_size": 8,'
        ' "disable_cuda_graphs": true},'
        ' "parallelism": {"tensor_parallel_degree": 8}, "activation_checkpoint": {"preserve_rng_state": true, "debug": false}}',
        {"model": "llama3-70b", "strategy.recompute": "full", "training.cuda_graphs": False, "training.global_batch_size": 32},
        nodes=4,
    ),
    Line(
        "transformers",
        "accelerate launch --use_fsdp --fsdp_reshard_after_forward false --fsdp_activation_checkpointing true --num_machines 4"
        " --num_processes 32 --parallelism_config_tp_size 2 run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B"
        " --block_size 4096 --per_device_train_batch_size 2",
        {"strategy.recompute": "full", "strategy.reshard_after_forward": False, "strategy.tp": 2, "training.global_batch_size": 32},
    ),
    Line(
        "megatron_bridge",
        "torchrun --nproc-per-node 8 --nnodes 8 run_script.py --recipe llama31_70b_pretrain_config train.global_batch_size=128"
        " train.micro_batch_size=1 model.tensor_model_parallel_size=4"
        " model.pipeline_model_parallel_size=4 model.seq_length=8192",
        {"model": "llama3.1-70b", "training.global_batch_size": 128, "strategy.tp": 4, "strategy.pp": 4, "strategy.zero_stage": 1},
    ),
    Line(
        "nemo",
        "python megatron_gpt_pretraining.py --config-path=conf --config-name=gpt trainer.devices=8 trainer.num_nodes=16"
        " trainer.precision=bf16"
        " model.micro_batch_size=1 model.global_batch_size=512 model.tensor_model_parallel_size=4"
        " +model.virtual_pipeline_model_parallel_size=5"
        " model.pipeline_model_parallel_size=4 model.encoder_seq_length=4096 model.num_layers=40 model.hidden_size=5120"
        " model.ffn_hidden_size=20480 model.num_attention_heads=40 ++model.optim.name=distributed_fused_adam"
        " model.tokenizer.type=GPT2BPETokenizer",
        {"model": "gpt3-13b", "cluster.nodes": 16, "strategy.virtual_stages": 5, "strategy.zero_stage": 1},
    ),
    Line(
        "maxtext",
        "srun -N 4 --ntasks-per-node=8 python -m MaxText.train base.yml model_name=llama3-8b per_device_batch_size=2"
        " dcn_pipeline_parallelism=4 num_pipeline_microbatches=8 num_layers_per_pipeline_stage=4 ici_fsdp_parallelism=8",
        {"training.global_batch_size": 64, "training.micro_batch_size": 1, "strategy.pp": 4, "strategy.virtual_stages": 2},
    ),
    Line(
        "maxtext",
        "python3 -m MaxText.train base.yml per_device_batch_size=4 base_num_decoder_layers=8 max_target_length=4096 quantization=fp8",
        {"model.hidden_size": 2048, "model.num_hidden_layers": 8, "model.vocab_size": 32000, "training.precision": "fp8"},
        nodes=1,
    ),
    Line(
        "olmo",
        "torchrun --nproc_per_node=8 --nnodes 4 scripts/train.py OLMo-7B.yaml --global_train_batch_size=1024 --model.d_model=4096"
        " --device_train_microbatch_size=2 --model.n_layers=32 --model.n_heads=32 --model.mlp_hidden_size=22016"
        " --model.embedding_size=50304"
        " --model.max_sequence_length=4096 --fsdp.wrapping_strategy=by_block --model.rope=true --model.weight_tying=false"
        " --model.mlp_ratio=8",
        {"training.global_batch_size": 1024, "training.micro_batch_size": 2, "model.intermediate_size": 11008},
    ),
    Line(
        "llm_foundry",
        "composer -n 8 --world_size 16 train/train.py mpt-7b.yaml max_duration=10ba global_train_batch_size=256"
        " device_train_microbatch_size=4 model.d_model=4096 model.n_heads=32 model.n_layers=32 max_seq_len=2048 model.vocab_size=50368"
        " fsdp_config.activation_checkpointing=true",
        {
            "training.global_batch_size": 256,
            "training.micro_batch_size": 4,
            "cluster.nodes": 2,
            "training.precision": "bf16",
            "strategy.preset": "pytorch_fsdp",
        },
    ),
    Line(
        "paddle",
        'python -u -m paddle.distributed.launch --gpus "0,1,2,3,4,5,6,7" run_pretrain.py --model_name_or_path meta-llama/Llama-2-7b'
        " --max_seq_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --tensor_parallel_degree 2"
        ' --pipeline_parallel_degree 2 --sharding "stage1" --bf16 --use_flash_attention 1 --recompute 1 --sequence_parallel 1',
        {"model": "llama2-7b", "training.global_batch_size": 32, "strategy.zero_stage": 1, "strategy.recompute": "full"},
        nodes=1,
    ),
    Line(
        "transformers",
        "deepspeed --num_gpus 8 --num_nodes 2 run_clm.py --deepspeed ds_z2.json --model_name_or_path meta-llama/Llama-2-7b-hf"
        " --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --bf16 true --block_size 4096 --gradient_checkpointing",
        {"model": "llama2-7b", "cluster.nodes": 2, "training.global_batch_size": 256, "strategy.preset": "deepspeed_zero2"},
    ),
    Line(
        "transformers",
        "accelerate launch --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP --num_processes 16 --mixed_precision bf16 train.py"
        " --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --max_seq_length 8192 --attn_implementation eager",
        {"strategy.preset": "pytorch_fsdp", "strategy.reshard_after_forward": False, "training.attention": "unfused", "cluster.nodes": 2},
    ),
    Line(
        "transformers",
        "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\nfinetuning_type: full\ndeepspeed: ds_z3_config.json\n"
        "cutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n",
        {"training.seq_length": 2048, "training.global_batch_size": 16, "strategy.preset": "deepspeed_zero3"},
        nodes=1,
    ),
    Line(
        "gpt_neox",
        '{"pipe-parallel-size": 1, "model-parallel-size": 2, "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16,\n'
        ' "seq-length": 2048, "pos-emb": "rotary", "no-weight-tying": True, "attention-config": [[["flash"], 24]],\n'
        ' "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4, "gradient-accumulation-steps": 8,\n'
        ' "fp16": {"enabled": true}, "padded_vocab_size": 50432,}\n',
        {"training.global_batch_size": 128, "training.attention": "flash_2", "strategy.tp": 2, "strategy.zero_stage": 1},
        nodes=1,
    ),
    Line(
        "gpt_neox",
        '{"pipe_parallel_size": 1, "num_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,\n'
        ' "num_kv_heads": 8, "seq_length": 8192, "sliding_window_width": 4096, "pos_emb": "rotary", "no_weight_tying": true,\n'
        ' "norm": "rmsnorm", "use_bias_in_attn_linear": false, "mlp_type": "llama", "activation": "silu", "padded_vocab_size": 32000,\n'
        ' "train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, "type": "bfloat16"}}\n',
        {"model": "mistral-7b", "training.seq_length": 8192, "training.precision": "bf16"},
        nodes=1,
    ),
    Line(
        "nanotron",
        "model: {dtype: bfloat16, model_config: {hidden_size: 2048, intermediate_size: 5632, num_attention_heads: 32,"
        " num_hidden_layers: 24, vocab_size: 32000}}\nparallelism: {dp: 4, pp: 2, tp: 2}\n"
        "optimizer: {zero_stage: 1}\ntokens: {batch_accumulation_per_replica: 8, micro_batch_size: 2, sequence_length: 2048}\n",
        {"strategy.schedule": "gpipe", "strategy.sequence_parallel": False, "strategy.overlap_tp": "none", "cluster.nodes": 2},
    ),
    Line(
        "primus",
        "modules:\n  pre_trainer:\n    config: pre_trainer.yaml\n    framework: megatron\n    model: llama2_7B.yaml\n"
        "    overrides:\n      tensor_model_parallel_size: 2\n      recompute_granularity: full\n",
        {"model": "llama2-7b", "training.global_batch_size": 16, "training.seq_length": 1024, "strategy.zero_stage": 1},
        nodes=1,
    ),
    Line(
        "primus_torchtitan",
        "modules:\n  pre_trainer:\n    config: pre_trainer.yaml\n    framework: torchtitan\n    model: llama3.1_8B.yaml\n    overrides:\n"
        "      training: {local_batch_size: 3, seq_len: 8192}\n      activation_checkpoint: {mode: none}\n      primus_turbo: {x: true}\n",
        {"model": "llama3.1-8b", "training.global_batch_size": 24, "training.seq_length": 8192, "strategy.recompute": "none"},
        nodes=1,
    ),
    Line(
        "megatron_lm",
        'cat <<EOT > ds.json\n{"train_batch_size": 512, "zero_optimization": {"stage": $ZERO}}\nEOT\n'
        "python -m torch.distributed.run --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 2"
        " --pipeline-model-parallel-size 4 --num-layers 70 --hidden-size 3584 --num-attention-heads 28 --seq-length 2048"
        " --micro-batch-size 2 --global-batch-size 2048 --vocab-file v --merge-file m --bf16 --position-embedding-type alibi"
        " --pp-partition-method 'type:transformer|embedding' --deepspeed --deepspeed_config ds.json --zero-stage 1",
        {
            "training.global_batch_size": 2048,
            "strategy.stage_layers": [17, 18, 18, 17],
            "strategy.zero_stage": 1,
            "model.vocab_size": 50257,
        },
    ),
    Line(
        "maxtext",
        "python3 -m maxtext.trainers.pre_train.train ${ROOT:-$PWD}/configs/base.yml model_name=llama3.1-405b per_device_batch_size=1.0"
        " max_target_length=8192 dcn_fsdp_parallelism=16 ici_fsdp_parallelism=4 ici_tensor_parallelism=2",
        {"cluster.nodes": 16, "strategy.tp": 2, "training.global_batch_size": 128, "strategy.shard_degree": None},
    ),
    Line(
        "maxtext",
        "python3 -m MaxText.train base.yml model_name=mixtral-8x7b per_device_batch_size=2 dcn_data_parallelism=2 ici_fsdp_parallelism=2"
        " ici_expert_parallelism=4",
        {"cluster.nodes": 2, "strategy.ep": 4, "training.global_batch_size": 32, "strategy.shard_degree": 8},
    ),
    Line(
        "primus_maxtext",
        "modules:\n  pre_trainer:\n    config: pre_trainer.yaml\n    framework: maxtext\n    model: mixtral_8x7B.yaml\n    overrides:\n"
        "      ici_fsdp_parallelism: 1\n      ici_expert_parallelism: -1\n      max_target_length: 4096\n      per_device_batch_size: 12\n",
        {"model": "mixtral-8x7b", "strategy.ep": 8, "training.global_batch_size": 96, "training.seq_length": 4096},
        nodes=1,
    ),
    Line(
        "megatron_lm",
        "deepspeed --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-experts 128 --moe-expert-parallel-size 8"
        " --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
        " --micro-batch-size 8 --global-batch-size 512 --vocab-file v --merge-file m --fp16 --deepspeed ${MORE_OPTIONS}",
        {"model.num_experts_per_tok": 1, "model.decoder_sparse_step": 2, "strategy.expert_capacity": 1, "training.precision": "fp16"},
        nodes=1,
    ),
    Line(
        "megatron_lm",
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 8 --hidden-size 1024 --micro-batch-size 1"
        " --num-attention-heads 8 --seq-length 1024 --global-batch-size 8 --vocab-size 32000 --bf16 ${LOAD_OPTIONS} --num-experts 4"
        " --moe-layer-freq 2",
        {"training.precision": "bf16", "model.mlp_only_layers": [1, 3, 5, 7]},
        nodes=1,
    ),
    Line(
        "axolotl",
        "base_model: Qwen/Qwen3-32B\nsequence_len: 2048\nmicro_batch_size: 1\nbf16: true\n"
        "fsdp_config:\n  fsdp_version: 2\n  reshard_after_forward: true\n",
        {"model": "qwen3-32b", "strategy.preset": "pytorch_fsdp", "training.global_batch_size": 8},
        nodes=1,
    ),
    Line(
        "paddle",
        '{"model_name_or_path": "deepseek-ai/DeepSeek-V3", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 10,'
        ' "pipeline_parallel_degree": 2, "sharding_parallel_degree": 4, "expert_parallel_degree": 4, "sharding": "stage1",'
        ' "max_seq_length": 4096, "bf16": true, "pipeline_parallel_config": "use_dualpipev"}',
        {"strategy.schedule": "dualpipe_v", "cluster.nodes": 1, "training.global_batch_size": 40},
    ),
    Line(
        "torchtune",
        "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full batch_size=4"
        " gradient_accumulation_steps=2 tokenizer.max_seq_len=4096",
        {"model": "llama3.1-8b", "cluster.nodes": 2, "training.global_batch_size": 128},
    ),
    Line(
        "torchtune",
        "tune run lora_finetune_single_device --config qwen2_5/1.5B_lora_single_device batch_size=4 tokenizer.max_seq_len=2048"
        " gradient_accumulation_steps=1",
        {"model": "qwen2.5-1.5b", "cluster.accelerators_per_node": 1, "training.global_batch_size": 4},
    ),
    Line(
        "nemo",
        "nemo llm pretrain --factory llama3_8b trainer.num_nodes=2 trainer.devices=8 data.global_batch_size=256 data.micro_batch_size=1"
        " data.seq_length=8192 trainer.strategy.tensor_model_parallel_size=2",
        {"model": "llama3-8b", "cluster.nodes": 2, "strategy.tp": 2, "training.precision": "bf16", "training.global_batch_size": 256},
    ),
    Line(
        "flagscale",
        "system: {tensor_model_parallel_size: 2, precision: {bf16: true}}\nmodel: {num_layers: 4, hidden_size: 512, num_attention_heads: 8,"
        " seq_length: 512, micro_batch_size: 1, global_batch_size: 8, swiglu: true, optimizer: {clip_grad: 1.0}}\n"
        "data: {tokenizer: {vocab_size: 32000}}\nexperiment: {runner: {nnodes: 1, nproc_per_node: 8}}\n",
        {"strategy.tp": 2, "training.precision": "bf16", "cluster.nodes": 1, "model.vocab_size": 32000},
    ),
    Line(
        "megatron_lm",
        "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\ntorchrun --nnodes $SLURM_NNODES --nproc-per-node $SLURM_GPUS_PER_NODE"
        " pretrain_gpt.py --tensor-model-parallel-size $SLURM_GPUS_PER_NODE --num-layers 4 --hidden-size 512 --num-attention-heads 8"
        " --seq-length 512"
        " --micro-batch-size 1 --global-batch-size $((SLURM_JOB_NUM_NODES * 16)) --vocab-size 32000 --bf16",
        {"strategy.tp": 8, "cluster.nodes": 4, "training.global_batch_size": 64},
    ),
    Line(
        "megatron_bridge",
        "python scripts/performance/setup_experiment.py -m llama31 -s 405b --num_gpus 512 --compute_dtype fp8_cs --gpu h100"
        " --tensor_model_parallel_size 8 --pipeline_model_parallel_size 8 --global_batch_size 128 --micro_batch_size 1 --seq_length 8192",
        {"model": "llama3.1-405b", "cluster.nodes": 64, "strategy.pp": 8, "training.precision": "fp8"},
    ),
    Line(
        "maxtext",
        "base_emb_dim: 3584\nbase_num_query_heads: 16\nbase_num_kv_heads: 8\nbase_mlp_dim: 14336\nbase_num_decoder_layers: 21\n"
        "head_dim: 256\nvocab_size: 256128\ndecoder_block: gemma2\nlogits_via_embedding: true\nq_lora_rank: 0\nper_device_batch_size: 2\n",
        {"model.num_hidden_layers": 42, "model.model_type": "gemma2", "training.global_batch_size": 16},
        nodes=1,
    ),
    Line(
        "megatron_lm",
        "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --expert_model_parallel_size 4 --micro_batch_size 1"
        " --global_batch_size 16 --max_length 8192 --optimizer_cpu_offload true",
        {
            "model": "qwen3-30b-a3b",
            "cluster.nodes": 1,
            "strategy.zero_stage": 1,
            "strategy.offload": ["optimizer"],
            "training.precision": "bf16",
            "training.seq_length": 8192,
        },
    ),
    Line(
        "megatron_lm",
        "msrun --worker_num 16 --local_worker_num 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --bf16"
        " --seq-length 512 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 2 --vocab-size 32000 --num-experts 16"
        " --moe-intermediate-size 128 --n-shared-experts 2 --first-k-dense-replace 1 --moe-router-topk 2"
        " --context-parallel-size 2 --context-parallel-algo ulysses_cp_algo",
        {
            "cluster.nodes": 2,
            "strategy.context_parallel": "ulysses",
            "model.moe_intermediate_size": 128,
            "model.num_shared_experts": 2,
            "model.first_k_dense_replace": 1,
        },
    ),
    Line(
        "megatron_lm",
        "BASE=(--num-layers 4 --hidden-size 512)\n"
        'OPTIONS="--num-attention-heads 8 --ffn-hidden-size 1024 --swiglu --seq-length 512 ${BASE[@]}"\n'
        'OPTIONS="$OPTIONS --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --bf16 "\n',
        {"model.num_hidden_layers": 4, "model.intermediate_size": 1024, "training.precision": "bf16"},
        nodes=1,
    ),
    Line(
        "nemo",
        "trainer: {num_nodes: 2, devices: 8}\ndistributed_strategy: {tensor_model_parallel_size: 8, zero1: true}\n"
        "data: {micro_batch_size: 1, global_batch_size: 64}\nmodel: {encoder_seq_length: 512, num_layers: 4, hidden_size: 512,"
        " num_attention_heads: 8, vocab_size: 32000}\n",
        {"strategy.tp": 8, "strategy.zero_stage": 1, "cluster.nodes": 2},
    ),
    Line(
        "transformers",
        "torchrun --nproc_per_node 4 train.py --model_name_or_path Qwen/Qwen3-14B --per_device_train_batch_size 2 --bf16"
        " --gradient_accumulation_steps 2 --block_size 4096 --deepspeed zero3.json",
        {"cluster.nodes": 1, "cluster.accelerators_per_node": 4, "training.global_batch_size": 16},
    ),
    Line(
        "transformers",
        "deepspeed --num_nodes 2 --num_gpus 8 main.py --model_name_or_path facebook/opt-66b --per_device_train_batch_size 4"
        " --max_seq_len 512 --zero_stage 3 --dtype bf16 --offload --deepspeed",
        {
            "model": "opt-66b",
            "training.precision": "bf16",
            "strategy.preset": "deepspeed_zero3",
            "strategy.offload": ["optimizer", "gradients", "parameters"],
        },
    ),
    Line(
        "transformers",
        "accelerate launch --config_file accelerate_configs/fsdp2.yaml --num_processes 8 sft.py --model_name_or_path Qwen/Qwen3-8B"
        " --per_device_train_batch_size 1 --max_length 4096 --bf16",
        {"strategy.preset": "pytorch_fsdp", "cluster.nodes": 1},
    ),
    Line(
        "nemo",
        'srun -N 8 --container-image=nvcr.io/nemo:25 nemo llm pretrain --factory "llama3_70b(num_nodes=8, num_gpus_per_node=8)"'
        " trainer.strategy.tensor_model_parallel_size=4 data.global_batch_size=128 data.micro_batch_size=1 data.seq_length=8192 -y",
        {"model": "llama3-70b", "cluster.nodes": 8, "strategy.tp": 4},
    ),
    Line(
        "megatron_lm",
        "ARGS=(--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --vocab-size 32000)\n"
        'srun bash -c "python pretrain_gpt.py ${ARGS[*]} --micro-batch-size 1 --global-batch-size 8"',
        {"model.num_hidden_layers": 4, "training.global_batch_size": 8},
        nodes=1,
    ),
)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.framework)
def test_a_command_line_or_short_file_is_read(line: Line, tmp_path: Path) -> None:
    assert_read(line, tmp_path)


def assert_read(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_text(line.text, encoding="utf-8")

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", nodes=line.nodes))

    assert found.framework == line.framework
    assert {key: at(found.data, key) for key in line.expected} == line.expected
    assert [key.key for key in found.keys if key.how == "unknown"] == []
