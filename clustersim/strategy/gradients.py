"""How gradients meet, and what the optimizer does with them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, fsum
from types import MappingProxyType
from typing import Final

from clustersim.program.tasks import Block, Collective, Compute, Group, Phase, Work
from clustersim.strategy.mesh import Mesh
from clustersim.strategy.plan import Plan
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


def layer_gradient_bytes(plan: Plan) -> float:
    """Return the bytes of one layer's gradients on one rank."""
    number = numerics(plan)
    return fsum(operator.parameters for operator in layer_operators(plan.model, local_shape(plan), number)) * number.gradient_bytes


def gradient_collective(plan: Plan, group: Group, size_bytes: float) -> Collective:
    """Return the reduction of gradients: an all-reduce, or with sharded optimizer states a reduce-scatter."""
    op = "all_reduce" if plan.strategy.zero_stage == 0 else "reduce_scatter"
    pieces = max(1, ceil(size_bytes / plan.strategy.data_parallel.bucket_bytes))
    return Collective(op=op, group=group, bytes=size_bytes, pieces=pieces)


def optimizer_update(plan: Plan, parameters: float) -> Compute:
    """Return clipping and update of the parameters of one rank, ZeRO's shard of them where they are sharded."""
    training, strategy = plan.training, plan.strategy
    shard = parameters / (strategy.dp * strategy.cp if strategy.zero_stage else 1)
    narrow = ELEMENT_BYTES[training.precision] < FP32_BYTES
    per_parameter = NORM_READ_BYTES + CLIP_BYTES + UPDATE_BYTES[training.optimizer]
    per_parameter += UNSCALE_BYTES if training.precision == "fp16" else 0.0
    per_parameter += COPY_BACK_BYTES + ELEMENT_BYTES[training.precision] if narrow else 0.0
    traffic_bytes = shard * per_parameter + parameters * ZERO_BYTES / (strategy.dp * strategy.cp if strategy.zero_stage >= 2 else 1)
    phase: Phase = "optimizer"
    work = Work(name="update", phase=phase, kernels=(Stream(traffic_bytes, launches=8),))
    return Compute(name="optimizer", phase=phase, blocks=(Block(name="update", body=(work,)),))
