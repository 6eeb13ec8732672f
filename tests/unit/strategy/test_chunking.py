"""Products cut into as many chunks as a tensor-parallel group has ranks."""

from __future__ import annotations

import pytest

from clustersim.program.tasks import Collective, Group, Overlapped, Work
from clustersim.strategy.chunking import beside_chunks
from clustersim.workload.operators import Gemm, Kernel, Stream

KERNELS: tuple[Kernel, ...] = (Stream(100.0), Gemm(1024, 512, 256))


def gather(n_ranks: int) -> Collective:
    group = Group(name="tp", dimension="tp", members=(tuple(range(n_ranks)),))
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
    assert rest.collective == collective
    assert rest.work.kernels == (chunk,) * (n_ranks - 1)


def test_rows_that_do_not_divide_are_rounded_up() -> None:
    first, _ = beside_chunks("qkv", "forward", (Gemm(10, 512, 256),), (gather(4),))

    assert isinstance(first, Work)
    assert first.kernels == (Gemm(3, 512, 256),)
