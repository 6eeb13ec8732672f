"""A plan in the words of a training framework."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.apps.plan.space import PLACEMENTS
from clustersim.errors import ScenarioError
from clustersim.parallel.stages import places_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, SHARDS_PARAMETERS, Offload, Plan, Strategy
from clustersim.units.divisors import listed
from clustersim.workloads.model import Model

MEGATRON_PRECISION: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"bf16": ("--bf16",), "fp16": ("--fp16",), "fp8": ("--bf16", "--fp8-format hybrid")}
)
MAX_CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
MEGATRON_FSDP: Final = ("--use-megatron-fsdp", "--ckpt-format fsdp_dtensor")
"""Megatron's FSDP asserts the format of checkpoints, also where none are written."""
MEGATRON_ZERO: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        0: (),
        1: ("--use-distributed-optimizer",),
        2: ("--use-distributed-optimizer", *MEGATRON_FSDP, "--data-parallel-sharding-strategy optim_grads"),
        3: ("--use-distributed-optimizer", *MEGATRON_FSDP, "--data-parallel-sharding-strategy optim_grads_params"),
    }
)
MEGATRON_RECOMPUTE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": (),
        "selective": ("--recompute-granularity selective",),
        "full": ("--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"),
    }
)
MEGATRON_RECOMPUTE_SOME: Final = {**MEGATRON_RECOMPUTE, "full": ("--recompute-granularity full", "--recompute-method block")}
"""Before the number of layers of a model chunk that are recomputed."""
MEGATRON_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({"ring": "p2p", "all_gather": "all_gather", "ulysses": "a2a"})
TORCHTITAN_SCHEDULES: Final[Mapping[str, str]] = MappingProxyType(
    {"1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B", "gpipe": "GPipe", "zb_v": "ZBVZeroBubble"}
)
TORCHTITAN_PRECISION: Final[Mapping[str, str]] = MappingProxyType({"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"})
"""Precisions of parameters in products; fp8 is a converter of the model besides."""
TORCHTITAN_RECOMPUTE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"none": ("none", ""), "alternate": ("selective", "op"), "full": ("full", "")}
)
"""Mode, and its setting of selective checkpoints."""
TORCHTITAN_VERSION: Final = "torchtitan 0.2.2, the last release that reads TOML (main branch: up to commit 238fa9953e4a of February 2026)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFiles:
    """A plan as a framework reads it."""

    text: str
    notes: tuple[str, ...]
    """Notes on settings that the file cannot hold, and on the version of the framework."""
    burdens: tuple[str, ...] = ()
    """Parts of the framework for which a search prefers a plainer layout, if it is about as fast."""


def megatron(plan: Plan) -> FrameworkFiles:
    """Return the flags of Megatron-LM's ``pretrain_gpt.py``.

    References
    ----------
    .. [1] NVIDIA, Megatron-LM core 0.16, ``megatron/training/arguments.py``, ``megatron/core/transformer/transformer_config.py``,
       ``megatron/core/parallel_state.py`` and ``megatron/core/distributed/fsdp/mcore_fsdp_adapter.py``.
    """
    strategy, training = plan.strategy, plan.training
    _check_megatron(plan.model, strategy, training)
    stage = _stage(strategy)
    flags = [
        f"--tensor-model-parallel-size {strategy.tp}",
        f"--pipeline-model-parallel-size {strategy.pp}",
        f"--context-parallel-size {strategy.cp}",
        *([f"--cp-comm-type {MEGATRON_CONTEXT[strategy.context_parallel]}"] if strategy.cp > 1 else []),
        f"--micro-batch-size {training.micro_batch_size}",
        f"--global-batch-size {training.global_batch_size}",
        f"--seq-length {training.seq_length}",
        *MEGATRON_PRECISION.get(training.precision, ()),
        *MEGATRON_ZERO[stage],
        *_megatron_overlap(strategy, stage),
        *(MEGATRON_RECOMPUTE if strategy.recompute_layers is None else MEGATRON_RECOMPUTE_SOME)[strategy.recompute],
    ]
    if strategy.recompute_layers is not None:
        flags.append(f"--recompute-num-layers {strategy.recompute_layers}")
    if strategy.sharding.degree < strategy.replicas and strategy.zero_stage:
        flags.append(f"--num-distributed-optimizer-instances {strategy.replicas // strategy.sharding.degree}")
    if training.vocabulary_multiple is not None:
        flags.append(f"--make-vocab-size-divisible-by {training.vocabulary_multiple}")
    if strategy.ep > 1:
        # Megatron-LM gathers all tokens unless it is told to send each to its experts, as the plan does.
        dispatch = "flex --moe-flex-dispatcher-backend deepep" if strategy.dispatch == "per_node" else "alltoall"
        flags += [f"--expert-model-parallel-size {strategy.ep}", f"--moe-token-dispatcher-type {dispatch}"]
    if strategy.expert_tp != strategy.tp or strategy.ep > 1:
        flags.append(f"--expert-tensor-parallel-size {strategy.expert_tp}")
    flags += ["--sequence-parallel"] if strategy.sequence_parallel else []
    if isinstance(strategy.stage_layers, tuple):
        flags.append(f'--pipeline-model-parallel-layout "{_megatron_layout(strategy.stage_layers)}"')
    elif strategy.pp > 1 and strategy.virtual_stages > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {strategy.virtual_stages}")
    if _pipeline_first(strategy):
        flags.append("--use-tp-pp-dp-mapping")
    if strategy.offload.optimizer != "accelerator":
        flags += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    burdens = ("needs Megatron's FSDP",) if stage >= SHARDS_GRADIENTS else ()
    return FrameworkFiles(text="\n".join(flags) + "\n", notes=_megatron_notes(strategy, stage), burdens=burdens)


def _check_megatron(model: Model, strategy: Strategy, training: Training) -> None:
    offload, sharded = strategy.offload, strategy.zero_stage >= SHARDS_GRADIENTS
    elsewhere = [part for part in ("gradients", "parameters", "activations") if getattr(offload, part) != "accelerator"]
    front_and_back = strategy.cp > 1 and training.seq_length % (2 * strategy.cp) > 0
    moved = offload.optimizer != "accelerator"
    _check_transformer("Megatron-LM", model)
    _check(
        "Megatron-LM",
        (training.lora_rank is not None, "adapters (lora_rank)", "-s training.lora_rank=null"),
        (strategy.schedule not in ("1f1b", "interleaved_1f1b"), f"schedule {strategy.schedule}", "--only schedule=1f1b,interleaved_1f1b"),
        (strategy.recompute == "alternate", "recompute alternate", "--only recompute=none,selective,full"),
        (sharded and strategy.pp > 1, f"pipeline stages with its FSDP (zero_stage {strategy.zero_stage})", "--only zero_stage=0,1"),
        (
            _pipeline_first(strategy) and strategy.expert_replicas != strategy.dp,
            f"placement {'-'.join(PLACEMENTS[1])} where experts and other layers have different numbers of replicas",
            f"--only placement={'-'.join(PLACEMENTS[0])}",
        ),
        (front_and_back, f"{training.seq_length} tokens on {strategy.cp} ranks of context parallelism, two pieces for each", "--only cp=1"),
        (offload.optimizer == "nvme", "offload to nvme", "--only offload=none,optimizer"),
        (bool(elsewhere), f"offload of {' and '.join(elsewhere)} in these flags", "--only offload=none,optimizer"),
        (moved and not _stage(strategy), "offload of an optimizer that is not sharded (zero_stage 0)", "--only zero_stage=1,2,3"),
        (moved and training.optimizer != "adam", f"offload of {training.optimizer}", "--only offload=none"),
    )


def _stage(strategy: Strategy) -> int:
    """Return the zero_stage to write: offload needs it, also on a single rank."""
    alone = strategy.replicas == 1 and strategy.offload.optimizer != "accelerator"
    return max(1, strategy.zero_stage) if alone else strategy.zero_stage


def _pipeline_first(strategy: Strategy) -> bool:
    """Return whether stages are nearer to each other than replicas."""
    return strategy.placement == PLACEMENTS[1] and strategy.pp > 1 and strategy.dp > 1


ONE_BUCKET_BYTES: Final = 1e12
"""Bucket that takes all gradients, which Megatron-LM has where it does not overlap (its preset)."""


def _megatron_overlap(strategy: Strategy, stage: int) -> tuple[str, ...]:
    if not strategy.data_parallel.overlap or strategy.data_parallel.bucket_bytes >= ONE_BUCKET_BYTES:
        return ()
    return ("--overlap-grad-reduce", "--overlap-param-gather") if stage else ("--overlap-grad-reduce",)


def connections(strategy: Strategy) -> int | None:
    """Return the ``CUDA_DEVICE_MAX_CONNECTIONS`` that Megatron-LM asserts before Blackwell; None where it asserts none, or any but 1."""
    sharded = _stage(strategy) >= SHARDS_GRADIENTS
    return 1 if not sharded and (strategy.tp > 1 or strategy.cp > 1) else None


def _megatron_notes(strategy: Strategy, stage: int) -> tuple[str, ...]:
    found = ["flags of Megatron-LM core 0.16 for the layout; those of model, data and optimizer come beside them (--as sbatch: a script)"]
    if stage >= SHARDS_GRADIENTS:
        found.append(f"its FSDP asserts that {MAX_CONNECTIONS} is not 1: leave it unset")
    elif connections(strategy) == 1:
        found.append(f"before Blackwell it asserts {MAX_CONNECTIONS}=1 for tensor and context parallelism: export it")
    if strategy.pp > 1 and strategy.overlap_p2p and strategy.virtual_stages == 1:
        found.append("sends overlap in the plan (overlap_p2p); it overlaps those of interleaved stages alone")
    return tuple(found)


def _megatron_layout(layers: tuple[int, ...]) -> str:
    """Return the parts of a model in Megatron's letters: E for the embedding, t for a layer, L for the loss.

    Examples
    --------
    >>> _megatron_layout((1, 2, 2, 1))
    'Et|t*2|t*2|tL'
    """
    parts = [f"t*{count}" if count > 1 else "t" for count in layers]
    return "E" + "|".join(parts) + "L"


def torchtitan(plan: Plan) -> FrameworkFiles:
    """Return the parallelism of a torchtitan job, in TOML.

    References
    ----------
    .. [1] PyTorch, torchtitan 0.2.2, ``torchtitan/config/job_config.py``, ``torchtitan/distributed/parallel_dims.py`` and
       ``torchtitan/distributed/pipeline_parallel.py``.
    """
    strategy, training = plan.strategy, plan.training
    _check_torchtitan(plan.model, strategy, training)
    # Without stages a micro-batch is the local batch, and gradients are added up to the global one.
    local = training.global_batch_size // strategy.dp if strategy.pp > 1 else training.micro_batch_size
    copies = strategy.replicas // strategy.sharding.degree if strategy.zero_stage else strategy.dp
    mode, option = TORCHTITAN_RECOMPUTE[strategy.recompute]
    converters = ["quantize.linear.float8", *(["quantize.grouped_mm.float8"] if plan.model.experts else [])]
    reshards = strategy.zero_stage == SHARDS_PARAMETERS and strategy.reshard_after_forward
    flavour = re.fullmatch(r"llama3(?:\.1)?-(8|70|405)b", plan.model.name)
    model = ['name = "llama3"', f'flavor = "{flavour[1]}B"'] if flavour else []
    model += [f"converters = {json.dumps(converters)}"] if training.precision == "fp8" else []
    lines = [
        f"# For {TORCHTITAN_VERSION}.",
        *(["[model]", *model, ""] if model else []),
        "[training]",
        f"local_batch_size = {local}",
        f"global_batch_size = {training.global_batch_size}",
        f"seq_len = {training.seq_length}",
        f'mixed_precision_param = "{TORCHTITAN_PRECISION[training.precision]}"',
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {copies}",
        f"data_parallel_shard_degree = {strategy.dp // copies}",
        f'fsdp_reshard_after_forward = "{"always" if reshards else "never"}"',
        f"tensor_parallel_degree = {strategy.tp}",
        f"context_parallel_degree = {strategy.cp}",
        f"expert_parallel_degree = {strategy.ep}",
        *([f"expert_tensor_parallel_degree = {strategy.expert_tp}"] if strategy.ep > 1 else []),
        f"pipeline_parallel_degree = {strategy.pp}",
    ]
    if strategy.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{TORCHTITAN_SCHEDULES[strategy.schedule]}"',
            f"pipeline_parallel_layers_per_stage = {plan.model.n_layers // places_of(strategy).n_parts}",
            # Otherwise embedding and head count as a layer each, and the stages come out uneven or one too many.
            "pipeline_parallel_first_stage_less_layers = 0",
            "pipeline_parallel_last_stage_less_layers = 0",
            f"pipeline_parallel_microbatch_size = {training.micro_batch_size}",
        ]
    if training.kernels == "fused":
        compiled = ["model", *(["loss"] if training.fused_loss else [])]
        lines += ["", "[compile]", "enable = true", f"components = {json.dumps(compiled)}"]
    lines += ["", "[activation_checkpoint]", f'mode = "{mode}"', *([f'selective_ac_option = "{option}"'] if option else [])]
    if training.precision == "fp8" and plan.model.experts:
        lines += ["", "[quantize.grouped_mm.float8]", 'fqns = ["experts"]']
    return FrameworkFiles(
        text="\n".join(lines) + "\n",
        notes=TORCHTITAN_NOTES if flavour else (*TORCHTITAN_NOTES, "give the model under [model], such as name = 'llama3', flavor = '8B'"),
    )


TORCHTITAN_NOTES: Final = (
    f"for {TORCHTITAN_VERSION}",
    "torchtitan 0.3.0 takes [training] and [parallelism] as --training.KEY and --parallelism.KEY, without expert_tensor_parallel_degree;"
    " activation checkpointing and fp8 stand in its Python configuration",
)


def _check_torchtitan(model: Model, strategy: Strategy, training: Training) -> None:
    pieces = strategy.tp * (2 * strategy.cp if strategy.cp > 1 else 1)
    replicated = strategy.zero_stage == 0
    beside = strategy.cp > 1 or strategy.ep > 1 or (strategy.dp > 1 and strategy.tp * strategy.pp > 1)
    uneven = strategy.zero_stage > 0 and strategy.sharding.degree % strategy.cp > 0
    _check_transformer("torchtitan", model)
    _check(
        "torchtitan",
        (training.lora_rank is not None, "adapters (lora_rank)", "-s training.lora_rank=null"),
        (strategy.recompute_layers is not None, "recomputation of some layers of a chunk", "-s strategy.recompute_layers=null"),
        (strategy.recompute not in TORCHTITAN_RECOMPUTE, f"recompute {strategy.recompute}", "--only recompute=none,alternate,full"),
        (
            bool(model.experts) and strategy.ep == 1 and strategy.expert_tp != strategy.tp,
            "degree of tensor parallelism of experts alone without expert parallelism (etp)",
            f"-s strategy.etp={strategy.tp}",
        ),
        (training.precision not in TORCHTITAN_PRECISION, f"precision {training.precision}", "-s training.precision=bf16"),
        (
            strategy.schedule not in TORCHTITAN_SCHEDULES,
            f"schedule {strategy.schedule}",
            f"--only schedule={','.join(TORCHTITAN_SCHEDULES)}",
        ),
        (strategy.zero_stage == 1, "sharding of optimizer states alone (zero_stage 1)", "--only zero_stage=2,3"),
        (replicated and beside, "replicas (zero_stage 0) beside another kind of parallelism", "--only zero_stage=2,3"),
        (uneven, f"{strategy.sharding.degree} ranks that share a copy with cp {strategy.cp}", "--only cp=1"),
        (bool(strategy.stage_layers), "stages of unequal numbers of layers in its configuration", "--only stage_layers=even"),
        (strategy.ep > 1 and strategy.expert_tp not in (1, strategy.tp), f"experts on {strategy.expert_tp} ranks each", "--only ep=1"),
        (training.seq_length % pieces > 0, f"{training.seq_length} tokens in {pieces} pieces", "--only cp=1 --only tp=1"),
        (strategy.tp > 1 and not strategy.sequence_parallel, "tensor parallelism without sequence parallelism", "--only tp=1"),
        (strategy.offload != Offload(), "offload of a part of the training state", "--only offload=none"),
    )
    _check_order("torchtitan", strategy)


def deepspeed(plan: Plan) -> FrameworkFiles:
    """Return a DeepSpeed configuration, in JSON.

    References
    ----------
    .. [1] Microsoft, DeepSpeed 0.18, ``deepspeed/runtime/config.py``, ``runtime/engine.py``, ``runtime/pipe/engine.py`` and
       ``moe/layer.py``; deepspeed.ai/docs/config-json.
    """
    strategy, training = plan.strategy, plan.training
    _check_deepspeed(strategy, training)
    zero: dict[str, object] = {"stage": _stage(strategy), "overlap_comm": strategy.data_parallel.overlap}
    for key, place in (("offload_optimizer", strategy.offload.optimizer), ("offload_param", strategy.offload.parameters)):
        if place != "accelerator":
            zero[key] = {"device": "nvme" if place == "nvme" else "cpu"}
    config: dict[str, object] = {
        "train_batch_size": training.global_batch_size,
        "train_micro_batch_size_per_gpu": training.micro_batch_size,
        "gradient_accumulation_steps": plan.n_micro_batches,
        "zero_optimization": zero,
        "fp16": {"enabled": training.precision == "fp16"},
        "bf16": {"enabled": training.precision == "bf16"},
    }
    if strategy.tp > 1 and strategy.pp == 1:
        config["tensor_parallel"] = {"autotp_size": strategy.tp}
    if strategy.recompute == "full" and strategy.pp > 1:
        config["pipeline"] = {"activation_checkpoint_interval": 1}
    return FrameworkFiles(text=json.dumps(config, indent=2) + "\n", notes=_deepspeed_notes(strategy))


def _check_deepspeed(strategy: Strategy, training: Training) -> None:
    offload, stage = strategy.offload, strategy.zero_stage
    whole = stage == SHARDS_PARAMETERS
    _check(
        "DeepSpeed",
        (
            strategy.recompute_layers is not None,
            "key for recomputation of some layers of a chunk (recompute_layers)",
            "-s strategy.recompute_layers=null",
        ),
        (training.lora_rank is not None, "key for adapters (lora_rank)", "-s training.lora_rank=null"),
        (training.precision == "fp8", "fp8 in its configuration", "-s training.precision=bf16"),
        (strategy.pp > 1 and strategy.schedule != "1f1b", f"schedule {strategy.schedule}", "--only schedule=1f1b"),
        (strategy.pp > 1 and stage > 1, f"pipeline stages with zero_stage {stage}", "--only zero_stage=0,1"),
        (strategy.cp > 1, f"context parallelism over {strategy.cp} ranks", "--only cp=1"),
        (
            bool(stage) and strategy.sharding.degree < strategy.replicas,
            "shards among some of the replicas",
            "-s strategy.shard_degree=auto",
        ),
        (whole and strategy.ep > 1, "expert parallelism with zero_stage 3", "--only zero_stage=0,1,2"),
        (whole and strategy.tp > 1, "tensor parallelism with zero_stage 3", "--only zero_stage=0,1,2"),
        (strategy.recompute not in ("none", "full"), f"key for recompute {strategy.recompute}", "--only recompute=none,full"),
        (bool(strategy.stage_layers), "key for stages of unequal numbers of layers", "--only stage_layers=even"),
        (offload.activations != "accelerator", "key for offload of activations", "--only offload=none,optimizer"),
        (offload.optimizer == "nvme" and not whole, f"offload to nvme with zero_stage {stage}", "--only zero_stage=3"),
        (offload.optimizer != "accelerator" and not _stage(strategy), "offload with zero_stage 0", "--only zero_stage=1,2,3"),
    )
    _check_order("DeepSpeed", strategy)


def _deepspeed_notes(strategy: Strategy) -> tuple[str, ...]:
    found = ["configuration of DeepSpeed 0.18"]
    if strategy.pp > 1:
        axes = f"num_pp={strategy.pp}, num_mp={strategy.tp}, num_dp={strategy.dp}"
        given = f"topology=PipeModelDataParallelTopology({axes})" if strategy.tp > 1 else f"num_stages={strategy.pp}"
        own = "; its layers divide their weights among tensor-parallel ranks themselves" if strategy.tp > 1 else ""
        found.append(f"pipeline stages have no key: give them to PipelineModule(layers, {given}){own}")
    if strategy.ep > 1:
        divided = ", enable_expert_tensor_parallelism=True" if strategy.expert_tp > 1 else ""
        found.append(f"expert parallelism has no key: give it to the model's deepspeed.moe.layer.MoE(..., ep_size={strategy.ep}{divided})")
    if strategy.recompute == "full" and strategy.pp == 1:
        found.append("recomputation has no key without stages: the model calls deepspeed.checkpointing.checkpoint for each layer")
    if strategy.sequence_parallel:
        found.append("the plan divides sequences among tensor-parallel ranks, and DeepSpeed does not: it takes more memory and time")
    if "nvme" in (strategy.offload.optimizer, strategy.offload.parameters):
        found.append("add the folder of the drive as nvme_path")
    return tuple(found)


FRAMEWORKS: Final[Mapping[str, Callable[[Plan], FrameworkFiles]]] = MappingProxyType(
    {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed}
)
"""In whose words a plan can be written."""


def _check_transformer(framework: str, model: Model) -> None:
    if not model.divisible:
        message = f"{framework} has no {model.name}"
        raise ScenarioError(message, field="--as", hint="write a transformer, or leave --as out for a scenario")


def _check_order(framework: str, strategy: Strategy) -> None:
    """Refuse an order of ranks other than that of the framework's mesh."""
    if _pipeline_first(strategy):
        _check(framework, (True, f"placement {'-'.join(PLACEMENTS[1])}", f"--only placement={'-'.join(PLACEMENTS[0])}"))


def _check(framework: str, *refusals: tuple[bool, str, str]) -> None:
    """Refuse all that hold of some refusals: whether each holds, what the framework lacks, and the options that search without it.

    What no layout changes stands first, since a search tells the commonest; the others are in the hint.
    """
    held = [(what, options) for holds, what, options in refusals if holds]
    if held:
        others = f"; nor has it {listed([what for what, _ in held[1:]], 'and')}" if held[1:] else ""
        options = " ".join(dict.fromkeys(options for _, options in held))
        settings = re.sub(r"--only (zero_stage|[cte]p|recompute|schedule)=([^, ]+)\S*", r"-s strategy.\1=\2", options)
        hint = f"change it with {'-s' if '--only' in settings else settings}, or let plan search what it has with {options}{others}"
        raise ScenarioError(f"{framework} has no {held[0][0]}", field="--as", hint=hint)
