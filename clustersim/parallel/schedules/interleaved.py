"""Interleaved 1F1B: several model chunks on each stage, for a bubble shorter by their number."""

from __future__ import annotations

from clustersim.parallel.schedules.order import Pass, StageOrder, backward, forward


def interleaved_1f1b(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of every stage; the bubble is ``(p - 1) / (m v)`` of the ideal time.

    Micro-batches go through a chunk in rounds of ``n_stages``; warm-up of stage s is ``2 (p - s - 1) + (v - 1) p`` passes. The
    number of micro-batches must be a multiple of ``n_stages``. Megatron-LM before core 0.9 ran all forward passes first where there are
    ``n_stages`` micro-batches; this is the order since, which keeps the logits of one micro-batch and not of all.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2.
    """
    return tuple(_stage(stage, n_stages, n_micro_batches, n_chunks) for stage in range(n_stages))


def _stage(stage: int, n_stages: int, n_micro_batches: int, n_chunks: int) -> StageOrder:
    n_passes = n_micro_batches * n_chunks
    n_warm_up = min(2 * (n_stages - stage - 1) + (n_chunks - 1) * n_stages, n_passes)

    def step(position: int, *, is_backward: bool) -> Pass:
        round_length = n_stages * n_chunks
        in_round = position % round_length
        chunk = in_round // n_stages
        micro_batch = position // round_length * n_stages + in_round % n_stages
        return backward(micro_batch, n_chunks - 1 - chunk) if is_backward else forward(micro_batch, chunk)

    order = [step(position, is_backward=False) for position in range(n_warm_up)]
    for position in range(n_passes - n_warm_up):
        order += [step(position + n_warm_up, is_backward=False), step(position, is_backward=True)]
    order += [step(position, is_backward=True) for position in range(n_passes - n_warm_up, n_passes)]
    return tuple(order)
