"""What communication beside a pass takes from its computation."""

from __future__ import annotations

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Block, Phase, Work
from clustersim.strategy.gradients import gathered_bytes, gradient_operations, reduced_bytes
from clustersim.strategy.plan import Plan
from clustersim.workload.operators import Carriage


def sent_bytes(op: CollectiveOp, size_bytes: float, n_ranks: int) -> float:
    """Return what each of some ranks sends in a ring: all but its own part, and for an all-reduce twice that.

    Examples
    --------
    >>> sent_bytes("all_gather", 8.0, 4), sent_bytes("all_reduce", 8.0, 4)
    (6.0, 12.0)
    """
    return (2.0 if op == "all_reduce" else 1.0) * size_bytes * (n_ranks - 1) / n_ranks


def beside_blocks(plan: Plan, phase: Phase, *, gathered: float = 0.0, reduced: float = 0.0) -> tuple[Block, ...]:
    """Return what the passes of a layer or of a bucket lose to the collectives beside them; nothing where nothing runs beside them.

    Parameters
    ----------
    gathered
        Parameters whose shards are gathered meanwhile.
    reduced
        Parameters whose gradients are reduced meanwhile.
    """
    strategy = plan.strategy
    if not strategy.data_parallel.overlap:
        return ()
    degree, whole = strategy.sharding.degree, strategy.dp * strategy.cp
    total_bytes = sent_bytes("all_gather", gathered * gathered_bytes(plan), degree)
    scattered = 1.0
    for op in gradient_operations(strategy):
        if op == "reduce_scatter":
            total_bytes += sent_bytes(op, reduced * reduced_bytes(plan), degree)
            scattered = float(degree)
        elif op == "all_reduce":
            # Copies of a sharded model add up shards; without shards there is one group of all.
            total_bytes += sent_bytes(op, reduced * reduced_bytes(plan) / scattered, whole if scattered == 1.0 else whole // degree)
    if total_bytes == 0.0:
        return ()
    return (Block(name="beside", body=(Work(name="communication beside", phase=phase, kernels=(Carriage(total_bytes),)),)),)
