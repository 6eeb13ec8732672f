"""DualPipe: micro-batches from both ends concurrently through two copies of the model."""

from __future__ import annotations

from clustersim.parallel.schedules.dual import MicroBatchStream, two_streams
from clustersim.parallel.schedules.order import StageOrder


def dualpipe(n_stages: int, n_micro_batches: int, n_chunks: int) -> tuple[StageOrder, ...]:
    """Return the order of each stage; bubble ``(p / 2 - 1) (t_fb + t_b - 3 t_w)``, with ``p + 1`` micro-batches stored.

    A stage holds its part of the model and that of the stage opposite. The number of stages must be even, and so must that of
    micro-batches, of which there are at least ``2 p``.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1 and table 2.
    """
    del n_chunks
    half = n_micro_batches // 2
    down, up = MicroBatchStream(chunk=0, micro_batches=range(half)), MicroBatchStream(chunk=1, micro_batches=range(half, n_micro_batches))
    upper = [two_streams(n_stages // 2, stage, down, up) for stage in range(n_stages // 2)]
    lower = [two_streams(n_stages // 2, stage, up, down) for stage in reversed(range(n_stages // 2))]
    return (*upper, *lower)
