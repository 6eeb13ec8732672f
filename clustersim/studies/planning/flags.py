"""A plan in the words of a training framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from clustersim.errors import ScenarioError
from clustersim.strategy.plan import Plan
from clustersim.strategy.stages import places_of
from clustersim.studies.planning.space import PLACEMENTS

MEGATRON_PRECISION: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"bf16": ("--bf16",), "fp16": ("--fp16",), "fp8": ("--bf16", "--fp8-format hybrid")}
)
MEGATRON_ZERO: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        0: (),
        1: ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"),
        2: ("--use-distributed-optimizer", "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads"),
        3: ("--use-distributed-optimizer", "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"),
    }
)
MEGATRON_RECOMPUTE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": (),
        "selective": ("--recompute-granularity selective",),
        "full": ("--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"),
    }
)
TORCHTITAN_RECOMPUTE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"none": ("none", ""), "selective": ("selective", "op"), "alternate": ("selective", "2"), "full": ("full", "")}
)
"""Mode, and what it says of selective checkpoints."""


def megatron(plan: Plan) -> str:
    """Return the flags of Megatron-LM's ``pretrain_gpt.py``.

    References
    ----------
    .. [1] NVIDIA, Megatron-LM, ``megatron/training/arguments.py``.
    """
    strategy, training = plan.strategy, plan.training
    if strategy.schedule not in ("1f1b", "interleaved_1f1b"):
        raise _unknown("Megatron-LM", f"schedule {strategy.schedule}", "schedule=1f1b,interleaved_1f1b")
    if strategy.recompute == "alternate":
        raise _unknown("Megatron-LM", "recompute alternate", "recompute=none,selective,full")
    flags = [
        f"--tensor-model-parallel-size {strategy.tp}",
        f"--pipeline-model-parallel-size {strategy.pp}",
        f"--context-parallel-size {strategy.cp}",
        f"--micro-batch-size {training.micro_batch_size}",
        f"--global-batch-size {training.global_batch_size}",
        f"--seq-length {training.seq_length}",
        *MEGATRON_PRECISION.get(training.precision, ()),
        *MEGATRON_ZERO[strategy.zero_stage],
        *MEGATRON_RECOMPUTE[strategy.recompute],
    ]
    if training.vocabulary_multiple is not None:
        flags.append(f"--make-vocab-size-divisible-by {training.vocabulary_multiple}")
    if strategy.ep > 1:
        flags += [f"--expert-model-parallel-size {strategy.ep}", f"--expert-tensor-parallel-size {strategy.expert_tp}"]
    flags += ["--sequence-parallel"] if strategy.sequence_parallel else []
    if strategy.stage_layers:
        flags.append(f'--pipeline-model-parallel-layout "{_megatron_layout(strategy.stage_layers)}"')
    elif strategy.virtual_stages > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {strategy.virtual_stages}")
    if strategy.placement == PLACEMENTS[1]:
        flags.append("--use-tp-pp-dp-mapping")
    if strategy.offload.optimizer != "accelerator":
        flags.append("--optimizer-cpu-offload")
    return "\n".join(flags) + "\n"


def _megatron_layout(layers: tuple[int, ...]) -> str:
    """Return the parts of a model in Megatron's letters: E for the embedding, t for a layer, L for the loss.

    Examples
    --------
    >>> _megatron_layout((1, 2, 2, 1))
    'Et|t*2|t*2|tL'
    """
    parts = [f"t*{count}" if count > 1 else "t" for count in layers]
    return "E" + "|".join(parts) + "L"


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
    if strategy.zero_stage == 1:
        raise _unknown("torchtitan", "sharding of optimizer states alone (zero_stage 1)", "zero_stage=0,2,3")
    if strategy.stage_layers:
        raise _unknown("torchtitan", "stages of unequal numbers of layers in its configuration", "pp=1")
    _check_order("torchtitan", plan)
    sharded = strategy.zero_stage > 0
    mode, option = TORCHTITAN_RECOMPUTE[strategy.recompute]
    # Without stages a micro-batch is the local batch, and gradients are added up to the global one.
    local = training.global_batch_size // strategy.dp if strategy.pp > 1 else training.micro_batch_size
    lines = [
        "[training]",
        f"local_batch_size = {local}",
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
        *([f"expert_tensor_parallel_degree = {strategy.expert_tp}"] if strategy.ep > 1 else []),
        f"pipeline_parallel_degree = {strategy.pp}",
    ]
    if strategy.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{names[strategy.schedule]}"',
            f"pipeline_parallel_layers_per_stage = {plan.model.n_layers // places_of(strategy).n_parts}",
            f"pipeline_parallel_microbatch_size = {training.micro_batch_size}",
        ]
    lines += [
        "",
        "[activation_checkpoint]",
        f'mode = "{mode}"',
        *([f'selective_ac_option = "{option}"'] if option else []),
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
    if strategy.cp > 1:
        raise _unknown("DeepSpeed", f"context parallelism over {strategy.cp} ranks", "cp=1")
    if strategy.ep > 1:
        raise _unknown("DeepSpeed", f"key for experts on {strategy.ep} ranks, which the model says (MoE(ep_size=...))", "ep=1")
    if strategy.recompute not in ("none", "full"):
        raise _unknown("DeepSpeed", f"key for recompute {strategy.recompute}", "recompute=none,full")
    if strategy.stage_layers:
        raise _unknown("DeepSpeed", "key for stages of unequal numbers of layers", "pp=1")
    _check_order("DeepSpeed", plan)
    zero: dict[str, object] = {"stage": strategy.zero_stage, "overlap_comm": strategy.data_parallel.overlap}
    if strategy.offload.optimizer != "accelerator":
        zero["offload_optimizer"] = {"device": "nvme" if strategy.offload.optimizer == "nvme" else "cpu"}
    config: dict[str, object] = {
        "train_batch_size": training.global_batch_size,
        "train_micro_batch_size_per_gpu": training.micro_batch_size,
        "gradient_accumulation_steps": plan.n_micro_batches,
        "zero_optimization": zero,
        "fp16": {"enabled": training.precision == "fp16"},
        "bf16": {"enabled": training.precision in ("bf16", "fp8")},
        "tensor_parallel": {"autotp_size": strategy.tp},
        "pipeline": {"stages": strategy.pp, "activation_checkpoint_interval": 1 if strategy.recompute == "full" else 0},
    }
    return json.dumps(config, indent=2) + "\n"


FRAMEWORKS: Final[Mapping[str, Callable[[Plan], str]]] = MappingProxyType(
    {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed}
)
"""In whose words a plan can be written."""


def _check_order(framework: str, plan: Plan) -> None:
    """Refuse ranks in another order than that in which a framework lays its mesh."""
    if plan.strategy.placement == PLACEMENTS[1] and plan.strategy.pp > 1 and plan.strategy.dp > 1:
        raise _unknown(framework, f"placement {'-'.join(PLACEMENTS[1])}", f"placement={'-'.join(PLACEMENTS[0])}")


def _unknown(framework: str, what: str, only: str) -> ScenarioError:
    return ScenarioError(f"{framework} has no {what}", field="--as", hint=f"search what it has with --only {only}")
