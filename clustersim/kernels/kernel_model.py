"""Duration of kernels on an accelerator, in training and in inference, in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import NormalDist
from typing import Final

from clustersim.hardware.calibration import AttentionCalibration, Calibration
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import KernelConstants
from clustersim.kernels.gemm import alignment, convolution_s, gemm_compute_s
from clustersim.workloads.operators import (
    VECTOR_BYTES,
    Convolution,
    FlashAttention,
    Gemm,
    GroupedGemm,
    Interference,
    Kernel,
    Recorded,
    Stream,
    vector_bytes,
)

FP8_BYTES: Final = 1.0
TILE_ROWS: Final = 128
"""Rows of a tile of a product that computes.

Measured products of 96 rows take as long as those of 128, and of 192 as long as of 256 (0.95 to 1.02 of the time in the median of seven
accelerators and both frameworks); 384 rows take three quarters of 512 (ai-dynamo/aiconfigurator, gemm tables)."""


def attention_fraction(kernel: FlashAttention, calibration: AttentionCalibration) -> float:
    """Return the share of the dense peak that fused attention reaches on the work it really does.

    ``f * d / (d + d0) * s / (s + s0)``: a rate for long sequences, less for narrow heads and for short sequences, whose
    blocks on the diagonal of a causal mask are computed in full. With a window, s is what a query sees: the band of a window w loses one
    block of w, half at either edge, and the triangle of a sequence s half a block of the s / 2 keys of its mean query: the same share.
    """
    direction = calibration.backward if kernel.backward else calibration.forward
    half = direction.causal_half_length if kernel.causal else direction.half_length
    length = kernel.seen_length / (kernel.seen_length + half)
    return direction.fraction * length * kernel.mean_head_dim / (kernel.mean_head_dim + calibration.half_head_dim)


def has_vectors(gemm: Gemm) -> bool:
    """Return whether rows of the operands and of the result are aligned to 16 bytes, which matrix units need in batches of products.

    References
    ----------
    .. [1] NVIDIA, *Matrix Multiplication Background User's Guide*, "Requirements to Use Tensor Cores": multiples of 16 bytes.

    Examples
    --------
    >>> has_vectors(Gemm(2048, 2048, 108, batch=64)), has_vectors(Gemm(2048, 2048, 112, batch=64))
    (False, True)
    """
    return gemm.batch == 1 or vector_bytes(gemm.element_bytes, gemm.n, gemm.k) == VECTOR_BYTES


def launches(kernel: Kernel) -> int:
    """Return how many kernels the host issues for one of ours."""
    match kernel:
        case Recorded() | Interference():
            return 0  # what the host needs is in the record; a collective is issued once, whatever it takes from others
        case Stream() | GroupedGemm():
            return kernel.launches if kernel.issued else 0
        case _:
            return int(kernel.issued)


def new_bytes(kernel: Kernel) -> float:
    """Return the bytes of the tensor that a kernel makes; none where it adds to memory, or of convolutions.

    Of fused attention as with as many heads of keys as of queries, and half of what other kernels move.

    Examples
    --------
    >>> new_bytes(Gemm(2048, 512, 512)), new_bytes(Gemm(2048, 512, 512, accumulates=True)), new_bytes(Stream(8.0))
    (2097152.0, 0.0, 4.0)
    """
    match kernel:
        case Gemm():
            return 0.0 if kernel.accumulates else kernel.batch * kernel.m * kernel.n * kernel.output_bytes
        case GroupedGemm():
            return sum(map(new_bytes, kernel.products))
        case FlashAttention():
            # The output of four tensors; the gradients of three of ten.
            return kernel.traffic_bytes * (0.3 if kernel.backward else 0.25)
        case Stream():
            return kernel.traffic_bytes / 2.0
        case _:
            return 0.0


@dataclass(slots=True)
class KernelModel:
    """Times of kernels on one accelerator at one precision; remembers shapes it has seen.

    Parameters
    ----------
    precision
        Of the matrix products: a key of ``accelerator.peak_flops_per_s``.
    attention_precision
        Of fused attention, which stays at 16 bits when the products run in fp8.
    blocks
        Whether the host waits for each kernel before it issues the next one.
    captured
        Whether the kernels of whole passes were captured in a graph, which the host issues as a whole.
    launch_overhead
        Host time to issue a kernel, relative to that of the calibration.
    fills
        Whether a kernel of the same call fills each new tensor before its result is written there.
    slowest
        How many times as long products and fused attention take on the slowest accelerator of a job as under the calibration.
    """

    accelerator: Accelerator
    calibration: Calibration
    precision: str
    attention_precision: str
    blocks: bool = False
    captured: bool = False
    launch_overhead: float = 1.0
    fills: bool = False
    slowest: float = 1.0
    _times_s: dict[Kernel, float] = field(default_factory=dict[Kernel, float])

    def kernel_s(self, kernel: Kernel) -> float:
        """Return the time of one kernel on an otherwise idle accelerator, in seconds.

        The larger of its compute time and its memory time, plus what every launch costs; of recorded work, what was recorded.
        """
        time_s = self._times_s.get(kernel)
        if time_s is None:
            time_s = self._times_s[kernel] = self._kernel_s(kernel) + self._filling_s(kernel)
        return time_s

    def work_s(self, kernels: Iterable[Kernel]) -> float:
        """Return the time that the accelerator needs for kernels in order."""
        device_s = 0.0
        for kernel in kernels:
            device_s += self.kernel_s(kernel)
        return device_s

    def issue_s(self, kernels: Iterable[Kernel], n_collectives: int = 0) -> float:
        """Return the time that the host needs to issue kernels, and collectives beside them; nothing for those of a graph."""
        if self.captured:
            return 0.0
        launch, calls, further = self.calibration.launch, n_collectives, 0
        for kernel in kernels:
            n = launches(kernel)
            joined = isinstance(kernel, GroupedGemm) or (isinstance(kernel, Stream) and kernel.one_call)
            together = n - 1 if n and joined else 0
            calls, further = calls + n - together, further + together
            if self.fills and new_bytes(kernel):
                further += n - together
        return calls * launch.dispatch_s * self.launch_overhead + further * launch.further_s

    def _filling_s(self, kernel: Kernel) -> float:
        """Return the time to fill the new tensor of a kernel, in seconds."""
        filled_bytes = new_bytes(kernel) if self.fills else 0.0
        return self._memory_s(filled_bytes) + self.calibration.launch.kernel_s if filled_bytes else 0.0

    def _memory_s(self, traffic_bytes: float) -> float:
        return traffic_bytes / (self.accelerator.memory_bandwidth_bytes_per_s * self.calibration.memory_fraction)

    def _kernel_s(self, kernel: Kernel) -> float:
        launch_s = self.calibration.launch.kernel_s
        match kernel:
            case Recorded():
                return kernel.duration_s
            case Interference():
                return self._interference_s(kernel.sent_bytes)
            case Stream():
                return self._memory_s(kernel.traffic_bytes) + kernel.launches * launch_s
            case FlashAttention():
                share = attention_fraction(kernel, self.calibration.attention[kernel.generation])
                rate = self.accelerator.peak_flops_per_s[self.attention_precision] * share
                return max(kernel.flops * kernel.done_fraction / rate * self.slowest, self._memory_s(kernel.traffic_bytes)) + launch_s
            case Gemm():
                return max(self._product_s(kernel), self._memory_s(kernel.traffic_bytes)) + launch_s
            case GroupedGemm(launches=launches):
                beside_s = launches * self.calibration.launch.product_s if launches > 1 else 0.0
                return max(self._product_s(kernel), self._memory_s(kernel.traffic_bytes)) + beside_s + launch_s
            case Convolution():
                return self._convolution_s(kernel) + launch_s

    def _convolution_s(self, convolution: Convolution) -> float:
        peaks, fractions = self.accelerator.peak_flops_per_s, self.calibration.gemm.sustained_fraction
        direct_rate = peaks.get("fp32", peaks[self.precision]) * fractions.get("fp32", fractions["default"])
        return convolution_s(
            convolution,
            precision=self.precision,
            product_s=self._gemm_s,
            direct_s=convolution.flops / direct_rate,
            stream_s=self._memory_s,
        )

    def _interference_s(self, sent_bytes: float) -> float:
        """Return the time of a number of bytes on the scale-up links, times the share of multiprocessors occupied."""
        network, card = self.calibration.network, self.accelerator
        rate = card.scale_up_bandwidth_bytes_per_s * network.efficiency["nvlink"]
        return sent_bytes / rate * network.multiprocessors / card.n_multiprocessors if rate > 0.0 else 0.0

    def _product_s(self, kernel: Gemm | GroupedGemm) -> float:
        """Return the compute time of a product of a transformer, whose shapes are not padded and which may stay in 16 bits under fp8.

        Matrix units refuse batches whose rows are not aligned, and take other products with kernels that read less at once; vector
        units do not care.
        """
        precision = self.attention_precision if self.precision == "fp8" and kernel.element_bytes > FP8_BYTES else self.precision
        if isinstance(kernel, GroupedGemm):
            return self._gemm_s(kernel, precision)
        if not has_vectors(kernel) and "fp32" in self.accelerator.peak_flops_per_s:
            return self._gemm_s(kernel, "fp32")
        share = 1.0 if precision == "fp32" else self.calibration.gemm.unaligned_fraction[alignment(kernel.vector_bytes)]
        return self._gemm_s(kernel, precision, share)

    def _steps_in_one(self) -> float:
        """Return how many steps of k in fp8 take as long as one in 16 bits: fill and drain take the same time in both."""
        peaks, fractions = self.accelerator.peak_flops_per_s, self.calibration.gemm.sustained_fraction
        return peaks["fp8"] * fractions.get("fp8", fractions["default"]) / (peaks[self.attention_precision] * fractions["default"])

    def _gemm_s(self, kernel: Gemm | GroupedGemm, precision: str | None = None, share: float = 1.0) -> float:
        """Return the compute time of a product whose steps of k run at a share of the rate in bursts.

        Fill and drain take the same time; the power limit slows no product that is slower by itself.
        """
        gemm, precision = self.calibration.gemm, precision or self.precision
        bursts, kept = (table.get(precision, table["default"]) for table in (gemm.sustained_fraction, gemm.under_load))
        peak_flops_per_s = self.accelerator.peak_flops_per_s[precision]
        if precision == "fp8":
            # Matrix units take two numbers of 4 bits as one of 8, unless they have a rate of their own.
            narrower = 1.0
            if kernel.element_bytes < FP8_BYTES:
                peaks = self.accelerator.peak_flops_per_s
                narrower = peaks.get("fp4", 2.0 * peak_flops_per_s) / peak_flops_per_s
            peak_flops_per_s *= narrower
            gemm = replace(gemm, depth_overhead=gemm.depth_overhead * self._steps_in_one() * narrower)
        if share < kept:
            gemm, kept = replace(gemm, depth_overhead=gemm.depth_overhead * share / kept), share
        return gemm_compute_s(
            kernel,
            gemm,
            peak_flops_per_s=peak_flops_per_s,
            fraction=bursts * kept / self.slowest,
            n_multiprocessors=self.accelerator.n_multiprocessors,
        )


BLOM: Final = 0.375
"""Makes the quantile of a normal distribution the expected order statistic."""


def expected_largest(n: int) -> float:
    """Return the expected maximum of a number of independent standard normal variables, within 1 % from eight on.

    References
    ----------
    .. [1] G. Blom, *Statistical Estimates and Transformed Beta-Variables*, 1958.

    Examples
    --------
    >>> [round(expected_largest(n), 2) for n in (1, 8, 512, 16384)]
    [0.0, 1.43, 3.03, 3.96]
    """
    return NormalDist().inv_cdf((n - BLOM) / (n + 1.0 - 2.0 * BLOM))


def slowest_of(n: int, accelerator: Accelerator, calibration: Calibration) -> float:
    """Return the slowdown of the slowest of a number of accelerators, relative to the slowest of those that were calibrated.

    Nothing is held up where products keep their rate under load: their clock is at its limit, which is the same for all.
    """
    gemm = calibration.gemm
    if gemm.under_load["default"] == 1.0:
        return 1.0
    spread = gemm.clock_spread if accelerator.clock_spread is None else accelerator.clock_spread
    return (1.0 + spread * expected_largest(n)) / (1.0 + spread * expected_largest(gemm.under_load_ranks))


def tiled_rows(rows: int) -> int:
    """Return the rows that a product of a number of rows computes: whole tiles, unless half a tile is enough.

    Kernels for few rows have smaller tiles, and are bound by reading weights.

    Examples
    --------
    >>> [tiled_rows(rows) for rows in (1, 64, 65, 129, 384)]
    [1, 64, 128, 256, 384]
    """
    return rows if rows <= TILE_ROWS // 2 else -(-rows // TILE_ROWS) * TILE_ROWS


def kernel_s(
    constants: KernelConstants,
    *,
    read_s: float,
    compute_s: float,
    activation_s: float = 0.0,
    cast_elements: float = 0.0,
) -> float:
    r"""Return the time of a kernel inside a graph, in seconds.

    .. math:: t = t_0 + \left[\left(\frac{r}{s}\right)^4 + \left(\frac{c}{e}\right)^4\right]^{1/4} + w a + q n + p \sqrt{r}

    Reading and computing overlap, but not perfectly where they take as long: the fourth root of fourth powers is the larger of the two
    where they differ, and a fifth more where they do not. ``p sqrt(r)`` is bandwidth that kernels of middling size do not reach.

    Parameters
    ----------
    read_s
        Time to read weights or a cache at the full bandwidth of the memory.
    compute_s
        Time of the products at the dense peak.
    activation_s
        Time to move the activations once at full bandwidth.
    cast_elements
        Elements that are cast before the product.
    """
    read = read_s / constants.bandwidth_fraction
    compute = compute_s / constants.peak_fraction
    read, compute = read * read, compute * compute
    overlapped_s = sqrt(sqrt(read * read + compute * compute))
    moved_s = constants.activation_passes * activation_s + constants.cast_s * cast_elements
    return constants.floor_s + overlapped_s + moved_s + constants.spread * sqrt(read_s)
