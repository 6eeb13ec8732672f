"""Time of a matrix product: tiles, waves of tiles, the depth of a tile, and memory."""

from __future__ import annotations

from math import ceil

from clustersim.hardware.calibration import GemmCalibration
from clustersim.workload.operators import Gemm


def gemm_compute_s(gemm: Gemm, calibration: GemmCalibration, *, peak_flops_per_s: float, fraction: float, n_multiprocessors: int) -> float:
    """Return the time that the multiprocessors need for a product, in seconds, memory and launch left out.

    The output is cut into tiles of R x C; each multiprocessor works on one at a time, so that T tiles take
    ``ceil(T / n_multiprocessors)`` waves, a last wave as long as a full one. A tile of depth k costs
    ``2 R C (k + k0)`` operations at the sustained rate of one multiprocessor; ``k0`` is fill and drain. The library is
    taken to choose the best tile.

    Parameters
    ----------
    fraction
        Share of the peak that a full wave of deep tiles sustains.

    References
    ----------
    .. [1] NVIDIA, *Matrix Multiplication Background User's Guide*: tile and wave quantisation.
    """
    rate = peak_flops_per_s * fraction / n_multiprocessors
    depth = gemm.k + calibration.depth_overhead
    best_s = float("inf")
    for rows, columns, share in calibration.tiles:
        n_tiles = ceil(gemm.m / rows) * ceil(gemm.n / columns) * gemm.batch
        n_waves = ceil(n_tiles / n_multiprocessors)
        best_s = min(best_s, n_waves * 2.0 * rows * columns * depth / (rate * share))
    return best_s
