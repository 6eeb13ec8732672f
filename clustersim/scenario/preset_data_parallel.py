"""What frameworks of data parallelism do by default, as keys of a scenario; each with its reason and its source."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.scenario.preset_parts import NO_SYNC, OVERLAP, eager, early_stop, own_processes, pytorch, whole_model
from clustersim.scenario.preset_sources import (
    AMP,
    DDP,
    DEEPSPEED,
    DEEPSPEED_ENGINE,
    DEEPSPEED_JSON,
    DP,
    FSDP,
    FSDP_NOTES,
    FSDP_RUNTIME,
    HOROVOD,
    HOROVOD_OPTIMIZER,
    NO_SERVERS,
    REDUCER,
    TF_SETTER,
    TF_STRATEGY,
    TICTAC,
    Preset,
    Setting,
)


def _zero(stage: int, what: str) -> tuple[Setting, ...]:
    """Return what all stages of DeepSpeed's ZeRO have in common."""
    return (
        Setting(key="strategy.zero_stage", value=stage, fixed=True, source=DEEPSPEED, reason=f"stage {stage} shards {what}"),
        own_processes(DEEPSPEED_ENGINE),
        Setting(
            key="strategy.data_parallel.bucket",
            value="2 GB",
            source=DEEPSPEED,
            reason="reduce_bucket_size is 5e8 elements, of 4 bytes each",
            where=("training.precision", ("fp32", "tf32")),
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="1 GB",
            source=DEEPSPEED,
            reason="reduce_bucket_size is 5e8 elements, of 2 bytes each; allgather_bucket_size is the same",
        ),
        Setting(
            key="training.gradient_precision",
            value="same",
            source=DEEPSPEED_JSON,
            reason="gradients are kept and averaged in the precision of the model",
        ),
        *pytorch(DEEPSPEED_ENGINE),
    )


_ZERO_1: Final = Preset(
    title="DeepSpeed, ZeRO stage 1",
    stands_for="DeepSpeed with zero_optimization.stage 1: every rank updates its part of the parameters, and gathers the others",
    settings=(
        *_zero(1, "optimizer state"),
        Setting(
            key=OVERLAP,
            value=False,
            source=DEEPSPEED,
            reason="overlap_comm is off below stage 3; gradients are reduced after the backward",
        ),
        Setting(key=NO_SYNC, value=True, source=DEEPSPEED_ENGINE, reason="gradients are reduced where accumulation ends"),
    ),
    left_out=("buckets of several owners are all-reduced (use_multi_rank_bucket_allreduce); a reduce-scatter is simulated",),
)
_ZERO_2: Final = Preset(
    title="DeepSpeed, ZeRO stage 2",
    stands_for="DeepSpeed with zero_optimization.stage 2: every rank keeps the gradients of its part only",
    settings=(
        *_zero(2, "optimizer state and gradients"),
        Setting(key=OVERLAP, value=False, source=DEEPSPEED, reason="overlap_comm is off below stage 3"),
        Setting(
            key=NO_SYNC,
            value=False,
            fixed=True,
            source=DEEPSPEED_ENGINE,
            reason="each micro-batch reduces its gradients, of which a rank keeps a part only; no_sync() is refused",
        ),
    ),
    left_out=(*_ZERO_1.left_out, "its pipeline engine refuses this stage; with pp: 2 or more, stages do as FSDP's would"),
)
_ZERO_3: Final = Preset(
    title="DeepSpeed, ZeRO stage 3",
    stands_for="DeepSpeed with zero_optimization.stage 3: parameters too are sharded, and gathered where they are used",
    settings=(
        *_zero(3, "optimizer state, gradients and parameters"),
        Setting(key=OVERLAP, value=True, source=DEEPSPEED, reason="overlap_comm is on with stage 3"),
        _ZERO_2.settings[-1],
        Setting(
            key="strategy.prefetch",
            value=1,
            source=DEEPSPEED,
            reason="stage3_prefetch_bucket_size is 5e7 elements: less than one layer of a large model",
        ),
        Setting(
            key="strategy.reshard_after_forward", value=True, source=DEEPSPEED, reason="parameters are released as soon as they were used"
        ),
    ),
    left_out=(
        "gradients are reduced layer by layer, and not when 5e8 elements are there",
        "tensors below 1e5 elements stay whole on every rank (stage3_param_persistence_threshold)",
        "parameters that are used again within 1e9 others are not released (stage3_max_reuse_distance)",
    ),
)

_PYTORCH_DP: Final = Preset(
    title="PyTorch, DataParallel",
    stands_for="torch.nn.DataParallel: one process scatters the batch over the accelerators of a node; the first keeps the parameters",
    settings=(
        Setting(
            key="strategy.data_parallel.single_process",
            value=True,
            fixed=True,
            source=DP,
            reason="parameters are broadcast from, outputs gathered on, and gradients added up on the first accelerator",
        ),
        whole_model(DP),
        Setting(
            key=OVERLAP,
            value=False,
            fixed=True,
            source=DP,
            reason="gradients are added up when the backward pass of every replica is through",
        ),
        Setting(key=NO_SYNC, value=False, fixed=True, source=DP, reason="each forward replicates the module, each backward adds up"),
        Setting(
            key="strategy.data_parallel.gather_precision",
            value="fp32",
            source=AMP,
            reason="what is broadcast are the parameters, which autocast leaves in fp32",
        ),
        Setting(
            key="strategy.data_parallel.bucket",
            value="10 MiB",
            source=DP,
            reason="broadcast_coalesced and reduce_add_coalesced have buffers of 10485760 bytes",
        ),
        Setting(key="training.gradient_precision", value="fp32", source=AMP, reason="autocast leaves parameters and gradients in fp32"),
        *pytorch(DP),
    ),
    left_out=("threads of one process share Python's interpreter lock",),
)
_PYTORCH_DDP: Final = Preset(
    title="PyTorch, DistributedDataParallel",
    stands_for="torch.nn.parallel.DistributedDataParallel: gradients are all-reduced in buckets while the backward pass runs",
    refuses=NO_SERVERS,
    settings=(
        whole_model(DDP),
        own_processes(DDP),
        Setting(key="strategy.data_parallel.bucket", value="25 MiB", source=REDUCER, reason="bucket_cap_mb is 25, in MiB"),
        Setting(
            key="strategy.data_parallel.first_bucket", value="1 MiB", source=REDUCER, reason="the first bucket is small, to begin early"
        ),
        Setting(key=OVERLAP, value=True, source=DDP, reason="a bucket is reduced as soon as its gradients are ready"),
        Setting(key=NO_SYNC, value=True, source=DDP, reason="accumulation runs under no_sync(), all but the last micro-batch"),
        Setting(key="training.gradient_precision", value="fp32", source=AMP, reason="autocast leaves parameters and gradients in fp32"),
        early_stop(),
        *pytorch(DDP),
    ),
)
_PYTORCH_FSDP: Final = Preset(
    title="PyTorch, FullyShardedDataParallel",
    stands_for="torch.distributed.fsdp.FullyShardedDataParallel with FULL_SHARD, one unit for each layer",
    refuses=NO_SERVERS,
    settings=(
        Setting(
            key="strategy.zero_stage",
            value=3,
            fixed=True,
            source=FSDP,
            reason="parameters, gradients and optimizer state are sharded; NO_SHARD is preset pytorch_ddp",
        ),
        own_processes(FSDP),
        Setting(key="strategy.reshard_after_forward", value=True, source=FSDP, reason="FULL_SHARD; false is SHARD_GRAD_OP"),
        Setting(
            key="strategy.keep_ends",
            value=True,
            source=FSDP_RUNTIME,
            reason="the root unit holds what no other unit does, embedding and head, and is not freed after the forward pass",
        ),
        Setting(
            key="strategy.shard_degree",
            value="auto",
            source=FSDP,
            reason="FULL_SHARD goes over all replicas; the accelerators of a node make it HYBRID_SHARD",
        ),
        Setting(
            key="strategy.prefetch",
            value=1,
            source=FSDP_NOTES,
            reason="backward_prefetch is BACKWARD_PRE; forward_prefetch is off, but the next gather runs beside a layer all the same; "
            "limit_all_gathers keeps two layers at most",
        ),
        Setting(key=OVERLAP, value=True, source=FSDP_NOTES, reason="collectives run on streams of their own"),
        Setting(key=NO_SYNC, value=False, source=FSDP, reason="no_sync() would keep whole gradients, and is off"),
        Setting(key="strategy.data_parallel.gather_precision", value="same", source=FSDP, reason="parameters are gathered in param_dtype"),
        Setting(
            key="training.gradient_precision", value="same", source=FSDP, reason="reduce_dtype is that of param_dtype unless it is given"
        ),
        early_stop(),
        *pytorch(FSDP),
    ),
    left_out=("sharded parameters and gradients are kept in fp32, without a copy in 16 bits: together the same 16 bytes with Adam",),
)
_HOROVOD_PRESET: Final = Preset(
    title="Horovod",
    stands_for="hvd.DistributedOptimizer: all-reduces of whatever gradients are ready, put together into a fusion buffer",
    refuses=NO_SERVERS,
    settings=(
        whole_model(HOROVOD),
        own_processes(HOROVOD),
        Setting(
            key="strategy.data_parallel.bucket",
            value="128 MiB",
            source=HOROVOD,
            reason="HOROVOD_FUSION_THRESHOLD; 64 MiB before version 0.21",
        ),
        Setting(key=OVERLAP, value=True, source=HOROVOD, reason="a background thread reduces what is ready"),
        Setting(key=NO_SYNC, value=True, source=HOROVOD_OPTIMIZER, reason="backward_passes_per_step counts the micro-batches"),
        Setting(
            key="strategy.data_parallel.reduce_precision", value="same", source=HOROVOD_OPTIMIZER, reason="compression is Compression.none"
        ),
        Setting(key="training.gradient_precision", value="fp32", source=AMP, reason="parameters and gradients are in fp32"),
        *eager(HOROVOD_OPTIMIZER),
    ),
    left_out=("every HOROVOD_CYCLE_TIME, 1 ms (5 ms before 0.21), ranks agree on what is ready",),
)
_TF_PARAMETER_SERVER: Final = Preset(
    title="TensorFlow, parameter servers",
    stands_for="tf.distribute.ParameterServerStrategy: variables live on servers, workers read and update them at their own pace",
    settings=(
        Setting(
            key="strategy.data_parallel.algorithm",
            value="parameter_server",
            fixed=True,
            source=TF_STRATEGY,
            reason="variables are created on parameter servers, and updated there",
        ),
        whole_model(TF_STRATEGY),
        own_processes(TF_STRATEGY),
        Setting(
            key="strategy.data_parallel.mode",
            value="async",
            source=TF_STRATEGY,
            reason="workers read and update variables independently; SyncReplicasOptimizer is mode sync",
        ),
        Setting(
            key="strategy.data_parallel.placement",
            value="dedicated",
            source=TF_SETTER,
            reason="the tasks of the job 'ps' have hosts of their own",
        ),
        Setting(
            key="strategy.data_parallel.assignment",
            value="round_robin",
            source=TF_SETTER,
            reason="variables go to the servers in turn; GreedyLoadBalancingStrategy is greedy",
        ),
        Setting(key="strategy.data_parallel.priority", value="none", source=TICTAC, reason="transfers are in no particular order"),
        Setting(
            key="strategy.data_parallel.reduce_in_node",
            value=False,
            source=TF_STRATEGY,
            reason="each worker pushes gradients of its own, and every accelerator is one",
        ),
        Setting(
            key="strategy.data_parallel.gather_precision",
            value="fp32",
            source=TF_STRATEGY,
            reason="what workers pull are the variables, which are in fp32; they cast what they got",
        ),
        Setting(key="training.gradient_precision", value="fp32", source=TF_STRATEGY, reason="variables and gradients are in fp32"),
        *eager(TF_STRATEGY),
    ),
)
DATA_PARALLEL: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "pytorch_dp": _PYTORCH_DP,
        "pytorch_ddp": _PYTORCH_DDP,
        "pytorch_fsdp": _PYTORCH_FSDP,
        "deepspeed_zero1": _ZERO_1,
        "deepspeed_zero2": _ZERO_2,
        "deepspeed_zero3": _ZERO_3,
        "horovod": _HOROVOD_PRESET,
        "tf_parameter_server": _TF_PARAMETER_SERVER,
    }
)
"""Frameworks that replicate or shard a model and divide no layer."""
