"""Short configurations of jobs, and what they leave to the defaults of their framework."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.test_command_lines import Line, assert_read
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, at, written

PODS: Final = """kind: PyTorchJob
spec:
  nprocPerNode: '8'
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
          - command: [torchrun, {arguments}]
    Worker: {{replicas: 3}}
"""
TRAIN_JOB: Final = """kind: TrainJob
spec:
  trainer:
    numNodes: 4
    numProcPerNode: 4
    command: [bash, -c]
    args: ['torchrun {arguments}']
"""
LITGPT: Final = """checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
precision: bf16-true
devices: 4
lora_r: 32
train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 512, max_tokens: null}
"""
OUMI: Final = """model: {model_name: meta-llama/Llama-3.1-8B-Instruct, model_max_length: 8192, torch_dtype_str: bfloat16}
training: {trainer_type: TRL_SFT, use_peft: true, per_device_train_batch_size: 2, enable_gradient_checkpointing: true, compile: true}
peft: {q_lora: true, lora_r: 16, lora_target_modules: [q_proj, v_proj]}
fsdp: {enable_fsdp: true, sharding_strategy: HYBRID_SHARD, cpu_offload: true}
"""
OUMI_READ: Final[dict[str, Data]] = {
    "model": "llama3.1-8b",
    "training.seq_length": 8192,
    "training.precision": "bf16",
    "training.lora_rank": 16,
    "training.frozen_precision": "nf4",
    "training.kernels": "fused",
    "strategy.preset": "pytorch_fsdp",
    "strategy.shard_degree": 8,
    "strategy.recompute": "full",
    "strategy.offload": ["optimizer", "gradients", "parameters"],
}
DELTA: Final = "--num-layers 8 --experimental-attention-variant gated_delta_net --linear-attention-freq 4"
DELTA_SIZES: Final = " --linear-num-key-heads 4 --linear-key-head-dim 64 --linear-num-value-heads 8 --linear-value-head-dim 64 "
WITH_STATES: Final[list[Data]] = [*["linear_attention"] * 3, "full_attention"] * 2
SLURM: Final = f" python {MEGATRON}--tensor-model-parallel-size 4"
FILES: Final = (
    Line("oumi", OUMI, OUMI_READ, nodes=2),
    Line(
        "litgpt",
        LITGPT,
        {"model": "llama3-8b", "training.lora_rank": 32, "training.kernels": "eager", "cluster.accelerators_per_node": 4},
    ),
    Line(
        "litgpt",
        "model: {n_layer: 6, n_head: 6, n_embd: 384, padded_vocab_size: 32000, block_size: 256, intermediate_size: 1536}\n"
        "train: {global_batch_size: 64, micro_batch_size: 4, lr_warmup_steps: 10}\n",
        {"model.hidden_size": 384, "model.gated_mlp": False, "training.seq_length": 256, "training.kernels": "fused"},
    ),
    Line(
        "megatron_lm",
        f"python {MEGATRON}{DELTA}{DELTA_SIZES}",
        {"model.layer_types": WITH_STATES, "model.linear_num_value_heads": 8},
        nodes=1,
    ),
    Line(
        "megatron_lm", f"srun -N 2 --ntasks-per-node 4 --gpus-per-task 1{SLURM}", {"cluster.nodes": 2, "cluster.accelerators_per_node": 4}
    ),
    Line("megatron_lm", f"srun -N 2 --gpus-per-task 8 torchrun{SLURM}", {"cluster.nodes": 2, "cluster.accelerators_per_node": None}),
    Line(
        "megatron_lm",
        PODS.format(arguments=", ".join(f"'{word}'" for word in MEGATRON.split())),
        {"cluster.nodes": 4, "cluster.accelerators_per_node": None},
    ),
    Line("megatron_lm", f"#SBATCH --nodes=4\n#SBATCH hetjob\n#SBATCH --nodes=1\nsrun{SLURM}", {"cluster.nodes": 4}),
    Line(
        "megatron_lm",
        f"cat > m.conf <<E\n0 torchrun --nnodes 4 --node_rank 0{SLURM}\n"
        f"1-3 torchrun --nnodes 4 --node_rank %t{SLURM}\nE\nsrun --multi-prog m.conf\n",
        {"cluster.nodes": 4, "strategy.tp": 4},
    ),
    Line(
        "megatron_lm",
        f"$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncommand: >-\n {SLURM}\n"
        "resources: {instance_count: 4}\ndistribution: {type: pytorch, process_count_per_instance: 8}\n",
        {"cluster.nodes": 4, "cluster.accelerators_per_node": None},
    ),
    Line(
        "transformers",
        "kind: RayJob\nspec:\n  entrypoint: python sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1"
        " --max_length 4096 --bf16 --deepspeed ds_z3.json\n  rayClusterSpec: {workerGroupSpecs: [{replicas: 4}]}\n",
        {"model": "qwen2.5-7b", "training.seq_length": 4096},
        nodes=4,
    ),
    Line("megatron_lm", TRAIN_JOB.format(arguments=MEGATRON), {"cluster.nodes": 4, "cluster.accelerators_per_node": 4}),
    Line(
        "megatron_lm",
        f"#PBS -N job\n#PBS -l select=16:ncpus=64:ngpus=4\n#PBS -l walltime=1:00:00\nmpiexec -n 64 --ppn 4{SLURM}",
        {"cluster.nodes": 16, "cluster.accelerators_per_node": 4},
    ),
    Line("megatron_lm", f"numactl --cpunodebind=0 mpirun -n 16 -N 8{SLURM}", {"cluster.nodes": 2, "cluster.accelerators_per_node": None}),
    Line("megatron_lm", f"#SBATCH -G h100:16\nsrun{SLURM}", {"cluster.nodes": 2, "cluster.accelerators_per_node": None}),
    Line("megatron_lm", f"#SBATCH --gpus=16\n#SBATCH --nodes=4\nsrun{SLURM}", {"cluster.nodes": 4}),
    Line("megatron_lm", f"aprun -n 16 -N 4{SLURM}", {"cluster.nodes": 4, "cluster.accelerators_per_node": 4}),
    Line(
        "megatron_lm",
        f"#PBS -l ngpus=32,walltime=1:00:00\nmpirun -np 32{SLURM}",
        {"cluster.nodes": 4, "cluster.accelerators_per_node": None},
    ),
    Line(
        "megatron_lm",
        f"#BSUB -nnodes 4\n#BSUB -gpu num=4:mode=shared\njsrun -n 16 -a 1 -g 1{SLURM}",
        {"cluster.nodes": 4, "cluster.accelerators_per_node": 4},
    ),
    Line("megatron_lm", f"srun -N 4 -n 32 --gpus-per-task 1{SLURM}", {"cluster.nodes": 4, "cluster.accelerators_per_node": None}),
    Line(
        "megatron_bridge",
        "python scripts/performance/setup_experiment.py -mr llama3_70b -ng 64 -g h100 -tp 4 -pp 8 -vp 5 -cp 1 -mb 1 -gb 128 -sl 8192",
        {"model": "llama3-70b", "cluster.nodes": 8, "strategy.virtual_stages": 5, "training.global_batch_size": 128},
    ),
    Line(
        "olmo",
        "model: {d_model: 512, n_heads: 8, n_layers: 4, mlp_hidden_size: 2048, vocab_size: 32000, max_sequence_length: 512, rope: true,"
        " weight_tying: false, flash_attention: true, activation_type: swiglu}\n"
        "global_train_batch_size: 64\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\nfsdp: {precision: mixed}\n",
        {"model.vocab_size": 32000},
        nodes=1,
    ),
    Line(
        "axolotl",
        "base_model: NousResearch/Llama-2-7b-hf\nsequence_len: 4096\nmicro_batch_size: 2\nbatch_size: 8\n"
        "optimizer: adamw_bnb_8bit\nbf16: auto\n",
        {"training.moment_precision": "fp8", "training.optimizer_kernels": "fused", "training.global_batch_size": 64},
        nodes=1,
    ),
    Line(
        "primus_torchtitan",
        "modules:\n  pre_trainer:\n    model: llama3.1_8B-fp8.yaml\n    overrides:\n"
        "      training:\n        local_batch_size: 4\n        seq_len: 8192\n",
        {"training.precision": "fp8", "training.global_batch_size": 32},
        nodes=1,
    ),
    Line(
        "primus",
        "modules:\n  post_trainer:\n    model: llama3_8B.yaml\n    overrides:\n"
        "      use_lora: true\n      lora_rank: 16\n      lora_target_modules: [q_proj, v_proj]\n"
        "      tensor_model_parallel_size: 2\n",
        {"training.lora_rank": 16, "training.lora_layers": ["q", "v"]},
        nodes=1,
    ),
    Line(
        "paddle",
        "model_name_or_path: Qwen/Qwen3-0.6B-Base\nfine_tuning: full\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n"
        "max_seq_len: 8192\nsharding: stage1\nuse_expert_parallel: true\nexpert_model_parallel_size: 4\nbf16: true\n",
        {"strategy.ep": 1, "training.global_batch_size": 32},
        nodes=1,
    ),
    Line(
        "primus_maxtext",
        "modules:\n  pre_trainer:\n    model: mixtral_8x7B.yaml\n    overrides:\n"
        "      per_device_batch_size: 2\n      ici_expert_parallelism: -1\n"
        "      ici_fsdp_parallelism: 1\n      dcn_data_parallelism: -1\n      sparse_matmul: false\n      capacity_factor: 1.25\n",
        {"strategy.ep": 8, "strategy.expert_capacity": 1.25},
        nodes=2,
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


def test_a_script_is_read_with_the_one_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("export SEQ=2048\nsbatch --nodes=4 batch.sh 8 full\n", "utf-8")
    (tmp_path / "batch.sh").write_text(
        "#!/bin/bash\n#SBATCH --ntasks-per-node=8\nexport TP=$1\nsrun bash ./job.sh --recompute-granularity $2\n", "utf-8"
    )
    (tmp_path / "job.sh").write_text(
        "python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --bf16 \\\n"
        "  --micro-batch-size 1 --global-batch-size 32 --seq-length $SEQ --tensor-model-parallel-size ${TP:-2} \\\n"
        "  --recompute-method uniform $@\n",
        "utf-8",
    )
    files = [str(tmp_path / name) for name in ("start.sh", "batch.sh", "job.sh")]

    found = import_files(files, ImportOptions(cluster="dgx-h100")).data

    keys = ("cluster.nodes", "training.seq_length", "strategy.tp", "strategy.recompute")
    assert [at(found, key) for key in keys] == [4, 2048, 8, "full"]


def test_a_model_that_is_not_shipped_is_not_replaced_by_defaults(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "modules:\n  pre_trainer:\n    framework: maxtext\n    model: unheard_of_7B.yaml\n    overrides:\n      per_device_batch_size: 2\n",
        "utf-8",
    )

    with pytest.raises(ScenarioError, match="the dimensions of 'unheard_of_7B', which is not shipped"):
        import_files([str(path)], ImportOptions(cluster="mi300x-oam", nodes=1))


def test_an_experiment_of_the_autotuner_is_a_job(tmp_path: Path) -> None:
    path = tmp_path / "exp.json"
    path.write_text(
        '{"exp_id": 3, "num_nodes": 2, "num_gpus": 8, "ds_config": {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,'
        ' "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}}',
        "utf-8",
    )

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", model="llama3-8b", overrides=("training.seq_length=2048",)))

    assert (found.framework, at(found.data, "cluster.nodes"), at(found.data, "training.global_batch_size")) == ("deepspeed", 2, 64)


BRIDGE_LOG = """[after dataloaders are built] datetime: 2025-10-06 03:26:20
------- Task Configuration -------
_target_: megatron.bridge.training.config.ConfigContainer
dataset:
  sequence_length: 1024
ddp:
  grad_reduce_in_fp32: true
  use_distributed_optimizer: true
model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama31ModelProvider
  add_bias_linear: false
  attention_dropout: 0.0
  ffn_hidden_size: 8192
  gated_linear_unit: true
  hidden_dropout: 0.0
  hidden_size: 2048
  kv_channels: 64
  normalization: RMSNorm
  num_attention_heads: 32
  num_layers: 16
  num_query_groups: 8
  position_embedding_type: rope
  seq_length: 131072
  share_embeddings_and_output_weights: true
  tensor_model_parallel_size: 2
  vocab_size: 128256
train:
  global_batch_size: 512
  micro_batch_size: 1
  train_iters: 30

----------------------------------
Training ...
 [2025-10-06 03:27:07] iteration       10/      30 | consumed samples: 5120 | elapsed time per iteration (ms): 4647.8 | loss scale: 1.0 |
 [2025-10-06 03:27:37] iteration       20/      30 | consumed samples: 10240 | elapsed time per iteration (ms): 3010.0 | loss scale: 1.0 |
"""


@pytest.mark.parametrize(("prefix", "end"), [("", "\n"), ("", "\r\n"), ("0: ", "\n"), (" 0: ", "\r\n"), ("[default0]:", "\n")])
def test_a_log_of_megatron_bridge_holds_its_settings_and_step_times(tmp_path: Path, prefix: str, end: str) -> None:
    lines = [f"{prefix}{line}" for line in BRIDGE_LOG.splitlines()]
    if prefix:
        lines[20:20] = [prefix.replace("0", "1") + "NCCL version 2.27.7"]
    lines.append(f"{prefix}Step Time : 9.00s GPU utilization: 663.5MODEL_TFLOP/s/GPU")
    path = tmp_path / "bridge.log"
    path.write_text(end.join(lines) + end, "utf-8", newline="")

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", nodes=1))

    keys = ("model", "training.seq_length", "training.global_batch_size", "strategy.tp", "strategy.zero_stage")
    assert [at(found.data, key) for key in keys] == ["llama3.2-1b", 1024, 512, 2, 1]
    assert found.measured is not None
    assert found.measured.step_time_s == 3.01
    assert next(key.line for key in found.keys if key.key == "model.hidden_size") == 16


@pytest.mark.parametrize(
    ("program", "kind"),
    [("pretrain_gpt5.py", "gpt"), ("/data/user_t5/albert/pretrain_gpt.py", "gpt"), ("/x/pretrain_t5.py", "t5"), ("finetune_t5.py", "t5")],
)
def test_the_name_of_a_program_says_the_kind_of_its_model(tmp_path: Path, program: str, kind: str) -> None:
    path = written(tmp_path, MEGATRON.replace("pretrain_gpt.py", f"torchrun {program}"))

    if kind == "t5":
        with pytest.raises(ScenarioError, match="'t5' is an encoder and a decoder, which is not simulated"):
            import_files([path], ON_H100)
    else:
        assert at(import_files([path], ON_H100).data, "model.causal") is not False


@pytest.mark.parametrize(("stage", "parts"), [(1, ["optimizer"]), (2, ["optimizer", "gradients"])])
def test_gradients_of_deepspeed_go_with_the_optimizer_from_stage_2_on(tmp_path: Path, stage: int, parts: list[str]) -> None:
    text = (
        f'{{"zero_optimization": {{"stage": {stage}, "offload_optimizer": {{"device": "cpu"}}}}, "train_micro_batch_size_per_gpu": 1,'
        ' "gradient_accumulation_steps": 1, "bf16": {"enabled": true}}'
    )
    asked = ImportOptions(cluster="dgx-h100", nodes=1, model="llama3-8b", overrides=("training.seq_length=2048",))

    found = import_files([written(tmp_path, text)], asked)

    assert at(found.data, "strategy.offload") == parts
    assert any("from stage 2 on" in (key.note or "") for key in found.keys)


PADDED = "hidden_size: 1024, num_layers: 8, num_attention_heads: 8, ffn_hidden_size: 4096, vocab_size: 32000, num_moe_experts: 8"


@pytest.mark.parametrize("which", ["fp8", "quantization"])
@pytest.mark.parametrize(
    "form",
    [
        "{{{0}}}",
        "{{train: {{global_batch_size: 64, micro_batch_size: 1}}, model: {{{0}}}}}",
        "{{trainer: {{num_nodes: 1}}, model: {{{0}}}}}",
        "{{modules: {{pre_trainer: {{framework: megatron, overrides: {{{0}}}}}}}}}",
    ],
    ids=["megatron_lm", "megatron_bridge", "nemo", "primus"],
)
def test_a_router_that_pads_is_read(tmp_path: Path, form: str, which: str, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "run.yaml"
    said = f"{PADDED}, seq_length: 1024, global_batch_size: 64, micro_batch_size: 1, moe_router_padding_for_{which}: true"
    path.write_text(form.format(said), "utf-8")

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", nodes=1))

    assert found.framework in request.node.name
    assert at(found.data, "training.router_padding") is True


@pytest.mark.parametrize(("file", "stage"), [("zero_stage1_config.json", 1), ("zero2.json", 2), ("ds_config.json", 3)])
def test_the_name_of_a_file_of_deepspeed_tells_the_stage(tmp_path: Path, file: str, stage: int) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(f"distributed_type: DEEPSPEED\ndeepspeed_config: {{deepspeed_config_file: {file}}}\nnum_processes: 8\n", "utf-8")
    overrides = ("training.seq_length=2048", "training.global_batch_size=32", "training.micro_batch_size=2")

    found = import_files([str(path)], ImportOptions(cluster="dgx-h100", model="llama3.1-8b", overrides=overrides))

    assert at(found.data, "strategy.preset") == f"deepspeed_zero{stage}"
