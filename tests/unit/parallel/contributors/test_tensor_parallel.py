"""Products cut into as many chunks as a tensor-parallel group has ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.hardware.calibration import GemmCalibration, Tile
from clustersim.kernels.gemm import gemm_compute_s
from clustersim.parallel.contributors.tensor_parallel import beside_chunks
from clustersim.program.tasks import Collective, Overlapped, RankGroups, Work
from clustersim.workloads.operators import Gemm, Kernel, Stream

KERNELS: tuple[Kernel, ...] = (Stream(100.0), Gemm(1024, 512, 256))


def gather(n_ranks: int) -> Collective:
    group = RankGroups(name="tp", dimension="tp", members=np.arange(n_ranks)[None])
    return Collective(op="all_gather", group=group, bytes=4096.0)


def test_without_a_collective_nothing_is_cut() -> None:
    assert beside_chunks("qkv", "forward", KERNELS, ()) == (Work(name="qkv", phase="forward", kernels=KERNELS),)


@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_a_collective_runs_beside_all_chunks_but_the_first(n_ranks: int) -> None:
    collective = gather(n_ranks)
    chunk = Gemm(1024 // n_ranks, 512, 256)

    first, rest = beside_chunks("qkv", "forward", KERNELS, (collective,))

    assert first == Work(name="qkv", phase="forward", kernels=(Stream(100.0), chunk))
    assert isinstance(rest, Overlapped)
    assert rest.collectives == (collective,)
    assert rest.works[0].kernels == (replace(chunk, batch=n_ranks - 1),)


def test_tiles_of_chunks_share_waves() -> None:
    calibration = GemmCalibration(
        sustained_fraction={"default": 1.0},
        under_load={"default": 1.0},
        power_exponent=0.7,
        depth_overhead=0.0,
        tiles=(Tile(128, 128, 1.0),),
    )

    def compute_s(gemm: Gemm) -> float:
        return gemm_compute_s(gemm, calibration, peak_flops_per_s=1e12, fraction=1.0, n_multiprocessors=100)

    _, rest = beside_chunks("qkv", "forward", (Gemm(8 * 128, 60 * 128, 256),), (gather(8),))
    assert isinstance(rest, Overlapped)
    (together,) = rest.works[0].kernels
    assert isinstance(together, Gemm)

    # Seven chunks of 60 tiles are five waves of 100, not seven.
    assert compute_s(together) == pytest.approx(5 / 7 * sum(compute_s(Gemm(128, 60 * 128, 256)) for _ in range(7)))


def test_what_a_reduce_scatter_brings_is_added_up() -> None:
    collective = replace(gather(4), op="reduce_scatter")

    first, _ = beside_chunks("down", "forward", (Gemm(1024, 512, 256),), (collective,))

    assert isinstance(first, Work)
    # Four partial results of a quarter of the rows are read, and the sum is written.
    assert first.kernels == (Gemm(256, 512, 256), Stream(5 * 1024.0))


def test_rows_that_do_not_divide_are_rounded_up() -> None:
    first, _ = beside_chunks("qkv", "forward", (Gemm(10, 512, 256),), (gather(4),))

    assert isinstance(first, Work)
    assert first.kernels == (Gemm(3, 512, 256),)
