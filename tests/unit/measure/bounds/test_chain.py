"""Passes in the order of a schedule, each as long as it takes by itself."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.measure.bounds.pipeline_bounds import pass_ends_s
from clustersim.parallel.schedules import SCHEDULES


def ends_s(
    schedule: str, n_stages: int, n_micro_batches: int, n_chunks: int = 1, *, send_s: float = 0.0, sends_block: bool = False
) -> list[float]:
    row = SCHEDULES[schedule]
    n_parts = n_stages * n_chunks
    passes = np.full(n_parts, 1.0), np.full(n_parts, 2.0)
    orders = row.orders(n_stages, n_micro_batches, n_chunks)
    return pass_ends_s(row.layout(n_stages, n_chunks), orders, passes, send_s=send_s, sends_block=sends_block).tolist()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("n_stages", "n_micro_batches"), [(1, 3), (2, 2), (4, 8), (8, 4)])
def test_equal_stages_end_with_the_closed_form(schedule: str, n_stages: int, n_micro_batches: int) -> None:
    assert max(ends_s(schedule, n_stages, n_micro_batches)) == (n_micro_batches + n_stages - 1) * 3.0


def test_chunks_shorten_the_bubble_by_their_number() -> None:
    assert max(ends_s("interleaved_1f1b", 4, 8, 2)) == 8 * 2 * 3.0 + (4 - 1) * 3.0


def test_the_last_stage_ends_first() -> None:
    assert ends_s("1f1b", 3, 6) == [24.0, 22.0, 20.0]


def test_one_micro_batch_waits_for_every_send() -> None:
    assert ends_s("1f1b", 3, 1, send_s=0.25)[0] == 3 * 3.0 + 4 * 0.25


def test_a_stage_that_waits_for_its_sends_ends_later() -> None:
    beside, blocking = (max(ends_s("1f1b", 2, 8, send_s=0.25, sends_block=blocks)) for blocks in (False, True))

    assert blocking > beside
