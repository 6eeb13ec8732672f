"""Breadth-first: all micro-batches through one chunk before the next, so that the gradients of a chunk are complete early."""

from __future__ import annotations

from clustersim.parallel.schedules.order import StageOrder, backward, forward


def breadth_first(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; bubble ``(p - 1) (t_f + t_b) / v``, with all m micro-batches of all chunks stored.

    References
    ----------
    .. [1] J. Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023, section 4.
    """
    order = [forward(index, chunk) for chunk in range(n_chunks) for index in range(n_micro_batches)]
    order += [backward(index, chunk) for chunk in reversed(range(n_chunks)) for index in range(n_micro_batches)]
    return (tuple(order),) * n_stages
