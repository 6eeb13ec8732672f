"""A plan in the words of a training framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from clustersim.errors import ScenarioError
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import part_layers
from clustersim.strategy.stages import places_of


def megatron(plan: Plan) -> str:
    """Return the flags of Megatron-LM's ``pretrain_gpt.py``.

    References
    ----------
    .. [1] NVIDIA, Megatron-LM, ``megatron/training/arguments.py``.
    """
    strategy, training = plan.strategy, plan.training
    if strategy.schedule not in ("1f1b", "interleaved_1f1b"):
        raise _unknown("Megatron-LM", f"schedule {strategy.schedule}", "schedule=1f1b,interleaved_1f1b")
    flags = [
        f"--tensor-model-parallel-size {strategy.tp}",
        f"--pipeline-model-parallel-size {strategy.pp}",
        f"--context-parallel-size {strategy.cp}",
        f"--micro-batch-size {training.micro_batch_size}",
        f"--global-batch-size {training.global_batch_size}",
        f"--seq-length {training.seq_length}",
    ]
    flags += [f"--expert-model-parallel-size {strategy.ep}"] if strategy.ep > 1 else []
    flags += ["--sequence-parallel"] if strategy.sequence_parallel else []
    flags += ["--bf16"] if training.precision == "bf16" else ["--fp16"] if training.precision == "fp16" else []
    if strategy.virtual_stages > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {strategy.virtual_stages}")
    if strategy.stage_layers:
        layers = ", ".join(map(str, part_layers(plan, places_of(strategy).n_parts)))
        flags.append(f"# layers of each stage: {layers}; see --pipeline-model-parallel-layout")
    if strategy.zero_stage in (1, 2):
        flags += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    elif strategy.zero_stage:
        flags += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"]
    if strategy.recompute == "full":
        flags += ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
    elif strategy.recompute == "selective":
        flags.append("--recompute-granularity selective")
    if strategy.offload.optimizer != "accelerator":
        flags.append("--optimizer-cpu-offload")
    return "\n".join(flags) + "\n"


def torchtitan(plan: Plan) -> str:
    """Return the parallelism of a torchtitan job, in TOML.

    References
    ----------
    .. [1] PyTorch, torchtitan, ``torchtitan/config/job_config.py``.
    """
    strategy, training = plan.strategy, plan.training
    names = {"1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B", "gpipe": "GPipe", "zb_v": "ZBVZeroBubble"}
    if strategy.schedule not in names:
        raise _unknown("torchtitan", f"schedule {strategy.schedule}", f"schedule={','.join(names)}")
    sharded = strategy.zero_stage > 0
    mode = {"none": "none", "selective": "selective", "full": "full", "alternate": "selective"}[strategy.recompute]
    lines = [
        "[training]",
        f"local_batch_size = {training.global_batch_size // strategy.dp}",
        f"global_batch_size = {training.global_batch_size}",
        f"seq_len = {training.seq_length}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {1 if sharded else strategy.dp}",
        f"data_parallel_shard_degree = {strategy.dp if sharded else 1}",
        f'fsdp_reshard_after_forward = "{"always" if strategy.zero_stage == 3 else "never"}"',
        f"tensor_parallel_degree = {strategy.tp}",
        f"context_parallel_degree = {strategy.cp}",
        f"expert_parallel_degree = {strategy.ep}",
        f"pipeline_parallel_degree = {strategy.pp}",
        f'pipeline_parallel_schedule = "{names[strategy.schedule]}"',
        f"pipeline_parallel_microbatch_size = {training.micro_batch_size}",
        "",
        "[activation_checkpoint]",
        f'mode = "{mode}"',
    ]
    return "\n".join(lines) + "\n"


def deepspeed(plan: Plan) -> str:
    """Return a DeepSpeed configuration, in JSON.

    References
    ----------
    .. [1] Microsoft, DeepSpeed configuration JSON, deepspeed.ai/docs/config-json.
    """
    strategy, training = plan.strategy, plan.training
    if strategy.pp > 1 and strategy.schedule != "1f1b":
        raise _unknown("DeepSpeed", f"schedule {strategy.schedule}", "schedule=1f1b")
    if strategy.pp > 1 and strategy.zero_stage > 1:
        raise _unknown("DeepSpeed", f"pipeline stages with zero_stage {strategy.zero_stage}", "zero_stage=0,1")
    zero: dict[str, object] = {"stage": strategy.zero_stage, "overlap_comm": strategy.data_parallel.overlap}
    if strategy.offload.optimizer != "accelerator":
        zero["offload_optimizer"] = {"device": "nvme" if strategy.offload.optimizer == "nvme" else "cpu"}
    config: dict[str, object] = {
        "train_batch_size": training.global_batch_size,
        "train_micro_batch_size_per_gpu": training.micro_batch_size,
        "gradient_accumulation_steps": plan.n_micro_batches,
        "zero_optimization": zero,
        training.precision if training.precision in ("bf16", "fp16") else "bf16": {"enabled": training.precision in ("bf16", "fp16")},
        "gradient_clipping": 1.0,
        "tensor_parallel": {"autotp_size": strategy.tp},
        "pipeline": {"stages": strategy.pp},
    }
    return json.dumps(config, indent=2) + "\n"


FRAMEWORKS: Final[Mapping[str, Callable[[Plan], str]]] = MappingProxyType(
    {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed}
)
"""In whose words a plan can be written."""


def _unknown(framework: str, what: str, only: str) -> ScenarioError:
    return ScenarioError(f"{framework} has no {what}", field="--as", hint=f"search what it has with --only {only}")
