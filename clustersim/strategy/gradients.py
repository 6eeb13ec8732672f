"""How gradients meet, and what the optimizer does with them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import ceil, fsum
from types import MappingProxyType
from typing import Final

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Block, Collective, Compute, Group, Phase, Work
from clustersim.strategy.mesh import Mesh
from clustersim.strategy.plan import Plan, Strategy, Training
from clustersim.strategy.shard import ELEMENT_BYTES, local_shape, numerics
from clustersim.workload.layer import layer_operators
from clustersim.workload.operators import Stream
from clustersim.workload.shapes import FP32_BYTES

GRADIENT_STREAM: Final = "dp"
"""Stream on which gradients meet."""

NORM_READ_BYTES: Final = 4.0
CLIP_BYTES: Final = 8.0
ZERO_BYTES: Final = 4.0
UNSCALE_BYTES: Final = 8.0
COPY_BACK_BYTES: Final = 4.0
"""Traffic for each fp32 gradient, counted over the kernels of Megatron-LM's mixed-precision optimizer.

The norm reads it, clipping reads and writes it, zeroing writes it, unscaling (fp16 only) reads and writes it; the updated master
weight is read to be copied back.
"""

UPDATE_BYTES: Final[Mapping[str, float]] = MappingProxyType({"adam": 28.0, "momentum": 20.0, "sgd": 12.0})
"""Reads and writes of gradient, weight and moments by a fused update, in fp32: Adam reads four numbers and writes three."""


def gradient_group(mesh: Mesh, stage: int) -> Group:
    """Return the groups of a stage over which gradients are reduced."""
    return Group(name=f"dp of stage {stage}", dimension="dp", members=mesh.groups("dp", stage))


def layers_per_bucket(plan: Plan) -> int:
    """Return how many layers' gradients one bucket holds, at least one."""
    return max(1, int(plan.strategy.data_parallel.bucket_bytes // layer_gradient_bytes(plan)))


def layer_slices(plan: Plan, n_layers: int) -> tuple[tuple[int, int], ...]:
    """Return first and last layer, the last one excluded, of slices of as many layers as fill a bucket, evenly, in forward order."""
    count = max(1, n_layers // layers_per_bucket(plan))
    return tuple(pairwise(n_layers * number // count for number in range(count + 1)))


def layer_gradient_bytes(plan: Plan) -> float:
    """Return the bytes of one layer's gradients on one rank."""
    number = numerics(plan)
    return fsum(operator.parameters for operator in layer_operators(plan.model, local_shape(plan), number)) * number.gradient_bytes


def gradient_operations(strategy: Strategy) -> tuple[CollectiveOp, ...]:
    """Return what the algorithm of data parallelism performs: the reduction of gradients, and where weights are sharded their gathering."""
    return ("all_reduce",) if strategy.zero_stage == 0 else ("reduce_scatter", "all_gather")


def gradient_collective(plan: Plan, group: Group, size_bytes: float) -> Collective:
    """Return the reduction of gradients: an all-reduce, or with sharded optimizer states a reduce-scatter."""
    gradients = plan.strategy.data_parallel
    op = gradient_operations(plan.strategy)[0]
    return Collective(op=op, group=group, bytes=size_bytes, pieces=n_buckets(plan, size_bytes), algorithm=gradients.algorithm)


def n_buckets(plan: Plan, size_bytes: float) -> int:
    """Return how many buckets so many bytes fill, at least one."""
    return max(1, ceil(size_bytes / plan.strategy.data_parallel.bucket_bytes))


def update_bytes(training: Training) -> float:
    """Return what updating one parameter reads and writes: gradient, weight and moments, and the copy of a weight in 16 bits."""
    narrow = ELEMENT_BYTES[training.precision] < FP32_BYTES
    copy_bytes = COPY_BACK_BYTES + ELEMENT_BYTES[training.precision] if narrow else 0.0
    return UPDATE_BYTES[training.optimizer] + copy_bytes + (UNSCALE_BYTES if training.precision == "fp16" else 0.0)


def optimizer_update(plan: Plan, parameters: float) -> Compute:
    """Return clipping and update of the parameters of one rank, ZeRO's shard of them where they are sharded."""
    training, strategy = plan.training, plan.strategy
    shard = parameters / (strategy.dp * strategy.cp if strategy.zero_stage else 1)
    per_parameter = NORM_READ_BYTES + CLIP_BYTES + update_bytes(training)
    traffic_bytes = shard * per_parameter + parameters * ZERO_BYTES / (strategy.dp * strategy.cp if strategy.zero_stage >= 2 else 1)
    phase: Phase = "optimizer"
    work = Work(name="update", phase=phase, kernels=(Stream(traffic_bytes, launches=8),))
    return Compute(name="optimizer", phase=phase, blocks=(Block(name="update", body=(work,)),))
