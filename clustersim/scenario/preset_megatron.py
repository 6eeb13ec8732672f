"""What Megatron-LM and frameworks that divide layers as it does do by default, as keys of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.scenario.preset_model_sources import (
    COLOSSAL,
    DEEPSPEED_PIPE,
    DEEPSPEED_SCHEDULE,
    MEGATRON,
    MEGATRON_DDP,
    MEGATRON_DEEPSPEED,
    MEGATRON_SCHEDULES,
)
from clustersim.scenario.preset_parts import ALL_AT_ONCE, NO_SYNC, OVERLAP, PLAIN, eager, one_forward_one_backward, own_processes, refused
from clustersim.scenario.preset_sources import NO_SERVERS, Preset, Refusal, Setting

_MEGATRON_SCHEDULES: Final = ("1f1b", "interleaved_1f1b")
_COLOSSAL_SCHEDULES: Final = ("1f1b", "interleaved_1f1b", "zb_v")

_MEGATRON_LM: Final = Preset(
    title="Megatron-LM",
    stands_for="Megatron-LM without optional flags: distributed optimizer and overlap have to be asked for",
    refuses=(*NO_SERVERS, *refused(_MEGATRON_SCHEDULES, "it has 1F1B, plain and interleaved")),
    settings=(
        own_processes(MEGATRON_DDP),
        Setting(
            key="strategy.zero_stage",
            value=0,
            source=MEGATRON,
            reason="the distributed optimizer, which is 1, is off without --use-distributed-optimizer",
        ),
        Setting(
            key=OVERLAP,
            value=False,
            source=MEGATRON,
            reason="gradients are reduced after the last backward without --overlap-grad-reduce",
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="160 MB",
            source=MEGATRON_DDP,
            reason="buckets of 40e6 parameters in fp32; of 1e6 for each replica where there are more than 40",
            where=(OVERLAP, (True,)),
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value=ALL_AT_ONCE,
            source=MEGATRON_DDP,
            reason="without overlap the whole gradient buffer is one bucket",
        ),
        Setting(key=NO_SYNC, value=True, source=MEGATRON_DDP, reason="gradients meet after the last micro-batch"),
        Setting(key="training.gradient_precision", value="fp32", source=MEGATRON, reason="bf16 sets --accumulate-allreduce-grads-in-fp32"),
        Setting(
            key="training.fused_gradient_accumulation",
            value=True,
            source=MEGATRON,
            reason="the weight-gradient product adds into the fp32 buffer unless --no-gradient-accumulation-fusion",
        ),
        Setting(key="training.kernels", value="fused", source=MEGATRON, reason="bias, GELU, dropout and softmax are fused"),
        Setting(key="training.vocabulary_multiple", value=128, source=MEGATRON, reason="--make-vocab-size-divisible-by is 128"),
        Setting(key="strategy.sequence_parallel", value=False, source=MEGATRON, reason="off without --sequence-parallel"),
        Setting(
            key="strategy.overlap_tp",
            value="weight_gradient",
            source=MEGATRON,
            reason="the backward all-reduce of tensor parallelism is asynchronous",
        ),
        *one_forward_one_backward(MEGATRON_SCHEDULES, "virtual stages"),
        Setting(
            key="strategy.overlap_p2p",
            value=False,
            source=MEGATRON,
            reason="--overlap-p2p-communication is for interleaved stages",
            where=PLAIN,
        ),
        Setting(key="strategy.context_parallel", value="ring", source=MEGATRON, reason="--cp-comm-type is p2p"),
        Setting(
            key="strategy.dispatch",
            value="all_to_all",
            source=MEGATRON,
            reason="--moe-token-dispatcher-type alltoall, as its examples have it; flex with DeepEP is per_node",
        ),
        Setting(key="strategy.overlap_ep", value=False, source=MEGATRON, reason="off without --moe-shared-expert-overlap"),
        Setting(key="strategy.recompute", value="none", source=MEGATRON, reason="--recompute-granularity is not set"),
    ),
    left_out=(
        "without --moe-token-dispatcher-type tokens are all-gathered (allgather), which is not there",
        "--sequence-parallel is needed with experts and tensor parallelism, and has to be asked for here as there",
    ),
)
_DEEPSPEED_3D: Final = Preset(
    title="Megatron-DeepSpeed, 3D parallelism",
    stands_for="Megatron-DeepSpeed: tensor parallelism of Megatron-LM, pipeline engine of DeepSpeed, ZeRO stage 1 at most",
    refuses=(
        *NO_SERVERS,
        *(Refusal(key="strategy.zero_stage", value=stage, reason="the pipeline engine takes no ZeRO-2 and no ZeRO-3") for stage in (2, 3)),
    ),
    settings=(
        own_processes(DEEPSPEED_PIPE),
        Setting(key="strategy.zero_stage", value=1, source=DEEPSPEED_PIPE, reason="0 or 1: others are refused"),
        Setting(key="strategy.schedule", value="1f1b", fixed=True, source=DEEPSPEED_SCHEDULE, reason="TrainSchedule is 1F1B"),
        Setting(key="strategy.overlap_p2p", value=False, fixed=True, source=DEEPSPEED_PIPE, reason="sends and receives are waited for"),
        Setting(
            key=OVERLAP,
            value=False,
            fixed=True,
            source=DEEPSPEED_PIPE,
            reason="enable_backward_allreduce is off: ReduceGrads is an instruction of its own behind the last backward pass",
        ),
        Setting(key=NO_SYNC, value=True, source=DEEPSPEED_PIPE, reason="one reduction in a step"),
        Setting(
            key="training.gradient_precision",
            value="same",
            source=DEEPSPEED_PIPE,
            reason="gradients are reduced as they are",
            where=("training.precision", ("fp16", "fp32", "tf32")),
        ),
        Setting(
            key="training.gradient_precision",
            value="fp32",
            source=DEEPSPEED_PIPE,
            reason="with bf16 they are accumulated in fp32: BF16_Optimizer has this fixed",
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="1 GB",
            source=DEEPSPEED_PIPE,
            reason="MEMORY_OPT_ALLREDUCE_SIZE is 5e8 elements, of 2 bytes each",
            where=("training.precision", ("fp16",)),
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="2 GB",
            source=DEEPSPEED_PIPE,
            reason="MEMORY_OPT_ALLREDUCE_SIZE is 5e8 elements, of 4 bytes each",
        ),
        Setting(key="strategy.sequence_parallel", value=False, source=MEGATRON_DEEPSPEED, reason="off without --sequence-parallel"),
        Setting(
            key="strategy.context_parallel",
            value="ulysses",
            source=MEGATRON_DEEPSPEED,
            reason="--ds-sequence-parallel-size exchanges parts of sequences for heads",
        ),
        Setting(
            key="strategy.overlap_tp",
            value="none",
            source=MEGATRON_DEEPSPEED,
            reason="with --deepspeed the asynchronous all-reduce of the backward pass is switched off",
        ),
        Setting(key="training.kernels", value="fused", source=MEGATRON_DEEPSPEED, reason="bias, GELU, dropout and softmax are fused"),
        Setting(key="training.vocabulary_multiple", value=128, source=MEGATRON_DEEPSPEED, reason="--make-vocab-size-divisible-by is 128"),
        Setting(
            key="training.fused_gradient_accumulation",
            value=False,
            source=DEEPSPEED_PIPE,
            reason="its optimizers add up gradients by kernels of their own",
        ),
    ),
    left_out=(
        "ZeRO-1 all-reduces whole gradients and updates a part; a reduce-scatter is simulated",
        "activations between stages are all-gathered only where pipe_partitioned is on",
    ),
)
_COLOSSAL_AI: Final = Preset(
    title="Colossal-AI",
    stands_for="Colossal-AI's HybridParallelPlugin: one-dimensional tensor parallelism, pipeline, ZeRO; zero_stage 3 is its GeminiPlugin",
    refuses=(*NO_SERVERS, *refused(_COLOSSAL_SCHEDULES, "pp_style is 1f1b, interleaved or zbv")),
    settings=(
        own_processes(COLOSSAL),
        Setting(key="strategy.zero_stage", value=0, source=COLOSSAL, reason="zero_stage is 0; with a pipeline it may be 1 at most"),
        Setting(
            key="strategy.data_parallel.bucket",
            value="25 MiB",
            source=COLOSSAL,
            reason="ddp_bucket_cap_mb is 25",
            where=("strategy.zero_stage", (0,)),
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="24 MiB",
            source=COLOSSAL,
            reason="zero_bucket_size_in_m is 12: so many times 2^20 elements, of 2 bytes each",
        ),
        Setting(key=OVERLAP, value=True, source=COLOSSAL, reason="overlap_communication is on"),
        *one_forward_one_backward(COLOSSAL, "num_model_chunks"),
        Setting(key="strategy.overlap_p2p", value=True, source=COLOSSAL, reason="overlap_p2p is on"),
        Setting(key="strategy.sequence_parallel", value=False, source=COLOSSAL, reason="enable_sequence_parallelism is off"),
        Setting(
            key="strategy.overlap_tp",
            value="weight_gradient",
            source=COLOSSAL,
            reason="the backward all-reduce of a column-split layer is asynchronous",
        ),
        Setting(key="training.gradient_precision", value="same", source=COLOSSAL, reason="communication_dtype is not set"),
        *eager(COLOSSAL),
    ),
    left_out=("Gemini moves chunks of parameters and states between accelerator and host as there is room",),
)

MEGATRON_LIKE: Final[Mapping[str, Preset]] = MappingProxyType(
    {"megatron_lm": _MEGATRON_LM, "deepspeed_3d": _DEEPSPEED_3D, "colossal_ai": _COLOSSAL_AI}
)
"""Frameworks with Megatron's tensor parallelism."""
