"""Products cut into chunks, so that tensor-parallel communication runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clustersim.program.tasks import Collective, Item, Overlapped, Phase, Work
from clustersim.workload.operators import Gemm, Kernel, Stream


def beside_chunks(name: str, phase: Phase, kernels: Sequence[Kernel], collectives: Sequence[Collective]) -> tuple[Item, ...]:
    """Return kernels whose products are computed slice by slice of their rows, and a collective beside all slices but one.

    Each rank has a slice of the input of a product to begin with, or has to end with a slice of its result. Slices go round a ring: while
    one is computed, the next one comes in, or the one before goes out and is added to. The collective runs beside all products but the
    first; what is no product is done with that. Without a collective nothing is cut.

    Chunks are issued on several streams in turn, so that the tiles of one fill up the last wave of the one before: they are priced as a
    batch. What others have computed of the rank's own slice is added up in a pass of its own.

    References
    ----------
    .. [1] S. Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models", ASPLOS 2023.
    """
    if not collectives:
        return (Work(name=name, phase=phase, kernels=tuple(kernels)),)
    (collective,) = collectives
    n_chunks = collective.group.size
    chunks = tuple(replace(kernel, m=-(-kernel.m // n_chunks)) for kernel in kernels if isinstance(kernel, Gemm))
    others = tuple(kernel for kernel in kernels if not isinstance(kernel, Gemm))
    together = tuple(replace(chunk, batch=(n_chunks - 1) * chunk.batch) for chunk in chunks)
    rest = Work(name=f"{name} chunks", phase=phase, kernels=together)
    return (Work(name=name, phase=phase, kernels=(*others, *chunks, *_sum(collective))), Overlapped(collective=collective, work=rest))


def _sum(collective: Collective) -> tuple[Kernel, ...]:
    """Return the adding up of as many partial results as there are ranks, each of one slice, where the collective ends with a sum."""
    if collective.op != "reduce_scatter":
        return ()
    n_partial = collective.group.size
    return (Stream(collective.bytes * (n_partial + 1) / n_partial),)
