"""Time of a matrix product, tile by tile, and of a convolution: the product that it is, in the best of several cuts."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from types import MappingProxyType
from typing import Final

from clustersim.hardware.calibration import Alignment, GemmCalibration
from clustersim.workloads.operators import VECTOR_BYTES, Convolution, Gemm, GroupedGemm

EVEN_BYTES: Final = 4


def alignment(at_once_bytes: int) -> Alignment:
    """Return the name of a product of one size class.

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


CHANNEL_MULTIPLE: Final = MappingProxyType({"tf32": 4, "fp16": 8, "bf16": 8, "fp8": 16})
"""Multiple to which matrix units round channels up; fp32 runs without them.

NVIDIA, *Convolutional Layers User's Guide*, "Channels In And Out". Three channels of a picture are rounded to four.
"""

PICTURE_CHANNELS: Final = 4

MOST_PARTS: Final = 64
"""Into which the depth of a weight gradient is cut at most."""

TILE_SIDE: Final = 4
"""Places of the result along one side of a tile of Winograd's algorithm."""

SUM_BYTES: Final = 8.0
"""Each part of a cut weight gradient writes an fp32 sum, which is then read."""


def convolution_s(
    convolution: Convolution,
    *,
    precision: str,
    product_s: Callable[[Gemm], float],
    direct_s: float,
    stream_s: Callable[[float], float],
) -> float:
    """Return the time that the multiprocessors need for a convolution, in seconds, launch left out.

    Parameters
    ----------
    precision
        Of the product, which says to what multiple channels are rounded up.
    product_s
        Compute time of a matrix product.
    direct_s
        Time of the same FLOPs without matrix units and tiles; what a convolution of narrow groups (depthwise) falls back to.
    stream_s
        Time of so many bytes of memory traffic.

    References
    ----------
    .. [1] S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014: convolution as implicit matrix product.
    """
    compute_s = min(product_s(cut) + stream_s(_sums_bytes(cut, convolution)) for cut in implicit_products(convolution, precision))
    if convolution.groups > 1:
        compute_s = min(compute_s, direct_s)
    implicit_s = max(compute_s, stream_s(convolution.traffic_bytes))
    if not takes_winograd(convolution, precision):
        return implicit_s
    products, transformed_bytes = winograd_products(convolution)
    # The products read and write what the transforms write and read.
    return min(implicit_s, max(product_s(products), stream_s(products.traffic_bytes)) + stream_s(transformed_bytes))


def implicit_products(convolution: Convolution, precision: str) -> tuple[Gemm, ...]:
    """Return the matrix products that compute a convolution, of which the library takes the fastest.

    For one group, with N images, C channels, K filters of R x S taps and P x Q places:

    * forward, (N P Q) x K, C R S deep;
    * gradient of the input, (N P Q) x C for each of the t1 t2 positions of a pixel relative to the stride, K R S / (t1 t2) deep,
      where ``t = min(stride, kernel)``;
    * gradient of the filters, K x (C R S), N P Q deep. There are few tiles and much depth, so that the depth may be cut into parts.
    """
    rows, columns = convolution.places
    places = convolution.batch * rows * columns
    taps = convolution.kernel[0] * convolution.kernel[1]
    groups, filters = convolution.groups, convolution.filters // convolution.groups
    channels = rounded_channels(convolution, precision)
    match convolution.product:
        case "forward":
            return (Gemm(places, filters, channels * taps, batch=groups),)
        case "input_gradient":
            phases = min(convolution.stride[0], convolution.kernel[0]) * min(convolution.stride[1], convolution.kernel[1])
            return (Gemm(places, channels, ceil(filters * taps / phases), batch=groups * phases),)
        case "weight_gradient":
            cuts = (1 << power for power in range(MOST_PARTS.bit_length()))
            return tuple(Gemm(filters, channels * taps, ceil(places / parts), batch=groups * parts) for parts in cuts if parts <= places)


def takes_winograd(convolution: Convolution, precision: str) -> bool:
    """Return whether the library has Winograd's algorithm: for 3 x 3 filters with stride 1, and numbers that bear its rounding."""
    return precision == "fp32" and convolution.kernel == (3, 3) and convolution.stride == (1, 1) and convolution.groups == 1


def winograd_products(convolution: Convolution) -> tuple[Gemm, float]:
    """Return the 36 products of F(4 x 4, 3 x 3), and the bytes that transforms read and write around them.

    Tiles of 6 x 6 of the input give 4 x 4 places of the result, with 36 multiplications for each pair of channel and filter where
    the direct way takes 144. Input and result become 36 / 16 times as large on the way; each kernel writes what the next one reads.
    The gradient of the filters is F(3 x 3, 4 x 4), which has the same tiles.

    References
    ----------
    .. [1] A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
    """
    rows, columns = convolution.places
    tiles = convolution.batch * ceil(rows / TILE_SIDE) * ceil(columns / TILE_SIDE)
    n_products = (TILE_SIDE + 2) ** 2
    channels, filters, e = convolution.channels, convolution.filters, convolution.element_bytes
    match convolution.product:
        case "forward":
            products = Gemm(tiles, filters, channels, batch=n_products, element_bytes=e, output_bytes=e)
        case "input_gradient":
            products = Gemm(tiles, channels, filters, batch=n_products, element_bytes=e, output_bytes=e)
        case "weight_gradient":
            products = Gemm(channels, filters, tiles, batch=n_products, element_bytes=e, output_bytes=e)
    return products, convolution.traffic_bytes + products.traffic_bytes


def rounded_channels(convolution: Convolution, precision: str) -> int:
    """Return the channels of a group as matrix units take them.

    Examples
    --------
    >>> rounded_channels(Convolution(batch=1, channels=3, height=8, width=8, filters=8, kernel=(3, 3)), "fp16")
    4
    """
    channels = convolution.channels // convolution.groups
    multiple = CHANNEL_MULTIPLE.get(precision, 1)
    if multiple > 1 and channels <= PICTURE_CHANNELS:
        return PICTURE_CHANNELS
    return ceil(channels / multiple) * multiple


def _sums_bytes(cut: Gemm, convolution: Convolution) -> float:
    parts = cut.batch // convolution.groups
    if convolution.product != "weight_gradient" or parts == 1:
        return 0.0
    return float(cut.batch) * cut.m * cut.n * SUM_BYTES
