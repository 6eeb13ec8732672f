"""1F1B (PipeDream-flush): after a warm-up, alternating forward and backward passes."""

from __future__ import annotations

from clustersim.parallel.schedules.order import Pass, StageOrder, backward, forward


def one_f_one_b(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; step time as for GPipe, with at most ``min(m, p - stage)`` micro-batches in flight.

    References
    ----------
    .. [1] D. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021.
    """
    del n_chunks
    return tuple(_stage(min(n_stages - stage - 1, n_micro_batches), n_micro_batches) for stage in range(n_stages))


def _stage(n_warm_up: int, n_micro_batches: int) -> StageOrder:
    order: list[Pass] = [forward(index) for index in range(n_warm_up)]
    for index in range(n_micro_batches - n_warm_up):
        order += [forward(index + n_warm_up), backward(index)]
    order += [backward(index) for index in range(n_micro_batches - n_warm_up, n_micro_batches)]
    return tuple(order)
