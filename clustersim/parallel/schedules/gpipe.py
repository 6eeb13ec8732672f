"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from clustersim.parallel.schedules.order import StageOrder, backward, forward


def gpipe(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; step time ``(m + p - 1) (t_f + t_b)``, all m micro-batches in flight.

    References
    ----------
    .. [1] Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
    """
    del n_chunks
    # Last in, first out: autograd runs the backward passes in the reverse order of the forward passes.
    order = tuple(forward(index) for index in range(n_micro_batches)) + tuple(backward(index) for index in reversed(range(n_micro_batches)))
    return (order,) * n_stages
