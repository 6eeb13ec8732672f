"""Layer-wise model parallelism: one micro-batch at a time through all stages and back."""

from __future__ import annotations

from clustersim.parallel.schedules.order import StageOrder, backward, forward


def naive(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of every stage: forward and backward of a micro-batch before the next one starts.

    One stage works at a time, so that utilisation is ``1 / n_stages``.
    """
    del n_chunks
    order = tuple(step for index in range(n_micro_batches) for step in (forward(index), backward(index)))
    return (order,) * n_stages
