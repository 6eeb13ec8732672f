"""Least times against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import clustersim
from clustersim.scenario.bounds.pipeline import lanes, ways_of_schedule


@pytest.mark.parametrize("n_stages", [1, 2, 4, 8])
@pytest.mark.parametrize("n_micro_batches", [1, 8, 32])
def test_equal_stages_take_fill_passes_and_drain(n_stages: int, n_micro_batches: int) -> None:
    forward_s, backward_s = np.full(n_stages, 1.0), np.full(n_stages, 2.0)
    ways = ways_of_schedule("1f1b", n_stages, 1)

    found = lanes(ways, (forward_s, backward_s), np.array([float(n_micro_batches)]), send_s=0.0, sends_block=False)

    # (m + p - 1) (t_f + t_b): the last stage waits for all others, before its first pass and behind its last
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((n_micro_batches + n_stages - 1) * 3.0)


@pytest.mark.parametrize(("n_stages", "n_chunks"), [(2, 2), (4, 5)])
def test_chunks_divide_fill_and_drain(n_stages: int, n_chunks: int) -> None:
    forward_s, backward_s = np.full(n_stages * n_chunks, 1.0), np.full(n_stages * n_chunks, 2.0)
    ways = ways_of_schedule("interleaved_1f1b", n_stages, n_chunks)

    found = lanes(ways, (forward_s, backward_s), np.array([16.0]), send_s=0.0, sends_block=False)

    # v m (t_f + t_b) + (p - 1) (t_f + t_b), with times of one chunk
    assert (found.fill_s + found.busy_s + found.drain_s).max() == pytest.approx((16 * n_chunks + n_stages - 1) * 3.0)


def test_sends_that_block_are_part_of_a_stage() -> None:
    times = np.ones(4)
    ways = ways_of_schedule("1f1b", 4, 1)

    free = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=False)
    blocked = lanes(ways, (times, times), np.array([8.0]), send_s=0.1, sends_block=True)

    # An inner stage sends forward and backward for each micro-batch; the last send belongs to what comes behind.
    assert (blocked.busy_s - free.busy_s).tolist() == pytest.approx([0.7, 1.5, 1.5, 0.7])
    assert free.fill_s.tolist() == pytest.approx([0.0, 1.1, 2.2, 3.3])


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "llama3-70b-h100-512", "gpt3-175b-selene", "gpt2-dp-8xv100", "llama3-8b-8xh100"])
def test_typical_layouts_are_within_two_percent_of_their_bound(name: str) -> None:
    bounds = clustersim.run(name).bounds

    assert 0.98 <= bounds.bound_fraction <= 1.0


@pytest.mark.parametrize("name", ["mixtral-8x7b-ep", "zb-v", "dualpipe", "gpt-10b-zero-offload-v100", "llama3-405b-4d"])
def test_other_layouts_are_within_a_fifth_of_their_bound(name: str) -> None:
    # Over hashed paths no traffic is in the bound, because what meets on them depends on all of it.
    bounds = clustersim.run(name, set=["cluster.fabric.routing=adaptive"]).bounds

    assert 0.8 <= bounds.bound_fraction <= 1.0


def test_the_parts_of_the_longest_way_add_up_to_it() -> None:
    bounds = clustersim.run("llama3-70b-h100-512").bounds

    assert sum(part.seconds for part in bounds.parts) == pytest.approx(bounds.path_s, rel=0.02)
