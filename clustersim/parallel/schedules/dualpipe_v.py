"""DualPipeV: DualPipe cut in half, on a V of two chunks for each stage and with one copy of the model."""

from __future__ import annotations

from clustersim.parallel.schedules.dual import MicroBatchStream, two_streams
from clustersim.parallel.schedules.order import StageOrder


def dualpipe_v(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; bubble ``(p - 1) (t_fb + t_b - 3 t_w)`` of passes through one chunk, with ``2 p + 1`` chunks stored.

    There are at least ``2 p`` micro-batches.

    References
    ----------
    .. [1] https://github.com/deepseek-ai/DualPipe, after https://hackmd.io/@ufotalent/r1lVXsa9Jg ("cut in half").
    """
    del n_chunks
    every = range(n_micro_batches)
    down, up = MicroBatchStream(chunk=0, micro_batches=every), MicroBatchStream(chunk=1, micro_batches=every)
    return tuple(two_streams(n_stages, stage, down, up) for stage in range(n_stages))
