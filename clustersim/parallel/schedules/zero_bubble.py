"""Zero-bubble schedules by hand, ZB-H1 and ZB-H2: weight gradients wait, and fill what would be idle."""

from __future__ import annotations

from clustersim.parallel.schedules.order import Pass, StageOrder, forward, input_gradient, weight_gradient


def zb_h1(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; bubble ``(p - 1) (t_f + t_i - t_w)``, with at most ``min(m, p)`` micro-batches stored on any stage.

    Stage s goes forward as under 1F1B and puts the weight gradients of s micro-batches off, so that the last stage hands its
    first input gradients on at the pace of two passes and not of three. Nothing changes on the first stage, and all stages keep as
    much as the first one did.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.2.1.
    """
    del n_chunks
    return tuple(_stage(n_stages - stage, stage, n_micro_batches) for stage in range(n_stages))


def zb_h2(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; bubble ``(p - 1) (t_f + t_i - 2 t_w)``, with at most ``2 p - 1`` micro-batches stored.

    More forward passes fill the wait for the first input gradient, and twice as many weight gradients are put off. Stages begin and
    end one after the other, which saves time only where no stage waits for the others before it updates.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.2.2.
    """
    del n_chunks
    return tuple(_stage(2 * (n_stages - stage) - 1, 2 * stage, n_micro_batches) for stage in range(n_stages))


def _stage(n_warm_up: int, n_put_off: int, n_micro_batches: int) -> StageOrder:
    order: list[Pass] = [forward(index) for index in range(min(n_warm_up, n_micro_batches))]
    for index in range(n_micro_batches):
        order.append(input_gradient(index))
        if index >= n_put_off:
            order.append(weight_gradient(index - n_put_off))
        if index + n_warm_up < n_micro_batches:
            order.append(forward(index + n_warm_up))
    order += [weight_gradient(index) for index in range(max(0, n_micro_batches - n_put_off), n_micro_batches)]
    return tuple(order)
