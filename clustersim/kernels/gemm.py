"""Time of a matrix product: tiles, waves of tiles, the depth of a tile, and memory."""

from __future__ import annotations

from math import ceil
from typing import Final

from clustersim.hardware.calibration import Alignment, GemmCalibration
from clustersim.workloads.operators import VECTOR_BYTES, Gemm, GroupedGemm

EVEN_BYTES: Final = 4


def alignment(at_once_bytes: int) -> Alignment:
    """Return what reading so many bytes at once is called.

    Examples
    --------
    >>> alignment(16), alignment(8), alignment(4), alignment(2)
    ('whole', 'even', 'even', 'odd')
    """
    if at_once_bytes >= VECTOR_BYTES:
        return "whole"
    return "even" if at_once_bytes >= EVEN_BYTES else "odd"


def gemm_compute_s(
    gemm: Gemm | GroupedGemm, calibration: GemmCalibration, *, peak_flops_per_s: float, fraction: float, n_multiprocessors: int
) -> float:
    """Return the time that the multiprocessors need for a product, in seconds, memory and launch left out.

    The output is cut into tiles of R x C; each multiprocessor works on one at a time, so that T tiles take
    ``ceil(T / n_multiprocessors)`` waves, a last wave as long as a full one. A tile of depth k costs
    ``2 R C (k + k0)`` operations at the sustained rate of one multiprocessor; ``k0`` is fill and drain. The library is
    taken to choose the best tile.

    Products of one kernel share its waves: their tiles follow each other, deepest first, and a wave lasts as long as its deepest tile.

    Parameters
    ----------
    fraction
        Share of the peak that a full wave of deep tiles sustains.

    References
    ----------
    .. [1] NVIDIA, *Matrix Multiplication Background User's Guide*: tile and wave quantisation.
    """
    rate = peak_flops_per_s * fraction / n_multiprocessors
    products = sorted((gemm,) if isinstance(gemm, Gemm) else gemm.products, key=lambda each: -each.k)
    best_s = float("inf")
    for rows, columns, share in calibration.tiles:
        n_tiles, n_waves, time_s = 0, 0, 0.0
        for each in products:
            n_tiles += ceil(each.m / rows) * ceil(each.n / columns) * each.batch
            more = ceil(n_tiles / n_multiprocessors) - n_waves
            n_waves += more
            time_s += more * 2.0 * rows * columns * (each.k + calibration.depth_overhead) / (rate * share)
        best_s = min(best_s, time_s)
    return best_s
