"""Interference of communication with the computation of a pass beside it."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.gradients import gathered_bytes, operations_among, reduced_bytes
from clustersim.parallel.training_plan import Strategy
from clustersim.parallel.weights import NOTHING, Weights
from clustersim.program.tasks import Block, Phase, Work
from clustersim.workloads.operators import Interference
from clustersim.workloads.shapes import Numerics


def sent_bytes(op: CollectiveOp, size_bytes: float, n_ranks: int) -> float:
    """Return what each of some ranks sends in a ring: all but its own part, and for an all-reduce twice that.

    Examples
    --------
    >>> sent_bytes("all_gather", 8.0, 4), sent_bytes("all_reduce", 8.0, 4)
    (6.0, 12.0)
    """
    return (2.0 if op == "all_reduce" else 1.0) * size_bytes * (n_ranks - 1) / n_ranks


def beside_blocks(
    strategy: Strategy, number: Numerics, phase: Phase, *, gathered: Weights = NOTHING, reduced: Weights = NOTHING
) -> tuple[Block, ...]:
    """Return the slowdown of passes by the overlapped collectives of a layer or bucket; nothing without overlap.

    Parameters
    ----------
    gathered
        Parameters whose shards are gathered meanwhile.
    reduced
        Parameters whose gradients are reduced meanwhile.
    """
    gradients = strategy.data_parallel
    if not gradients.overlap or not (gathered.total or reduced.total):
        return ()
    sharding, total_bytes = strategy.sharding, 0.0
    ways = (
        (gathered.dense, reduced.dense, sharding.degree, strategy.replicas),
        (gathered.expert, reduced.expert, sharding.expert_degree, strategy.expert_replicas),
    )
    for shared, summed, degree, n_holders in ways:
        total_bytes += sent_bytes("all_gather", shared * gathered_bytes(gradients, number), degree)
        ops = operations_among(n_holders, degree, strategy)
        total_bytes += _reduced_bytes(ops, summed * reduced_bytes(gradients, number), degree, n_holders)
    if total_bytes == 0.0:
        return ()
    return (Block(name="beside", body=(Work(name="communication beside", phase=phase, kernels=(Interference(total_bytes),)),)),)


def _reduced_bytes(ops: Sequence[CollectiveOp], size_bytes: float, degree: int, n_holders: int) -> float:
    """Return the bytes that a rank sends to reduce gradients of a number of bytes."""
    total_bytes, scattered = 0.0, 1
    for op in ops:
        if op == "reduce_scatter":
            total_bytes += sent_bytes(op, size_bytes, degree)
            scattered = degree
        elif op == "all_reduce":
            # Copies of a sharded model add up shards; without shards there is one group of all.
            total_bytes += sent_bytes(op, size_bytes / scattered, n_holders // scattered)
    return total_bytes
