"""Readings of a profiler trace: products with their kernels, gaps between kernels, and speeds of the host and of memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, prod
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Final

from clustersim.apps.calibrate.document import FAR, FEW, is_far, move
from clustersim.apps.calibrate.fit_products import ELEMENT_BYTES, Product
from clustersim.apps.calibrate.fitting import CalibrationTarget
from clustersim.apps.calibrate.trace_file import read_trace
from clustersim.apps.calibrate.traced import LaunchedKernel, TracedTensor, TraceFile, check_device
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import constant as constant_of
from clustersim.units.grouping import grouped
from clustersim.workloads.operators import Gemm, vector_bytes

FEWEST: Final = 10
"""Samples from which a constant is read."""
FEWEST_BYTES: Final = 100e6
"""Least bytes of an elementwise kernel: what moves less may stay in the cache."""
PAUSE: Final = 20.0
"""Times the median: a longer interval between launches is a pause, such as that between steps."""
TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"c10::half": "fp16", "half": "fp16", "c10::bfloat16": "bf16", "bfloat16": "bf16", "float": "fp32"}
)
PRODUCTS: Final = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
ELEMENTWISE: Final = tuple(f"aten::{name}" for name in ("add", "sub", "mul", "div", "gelu", "silu", "relu", "tanh", "sigmoid", "clone"))
"""Operators that read their tensors and write one of the common shape; with the suffix ``_``, into the first."""
COPY: Final = "aten::copy_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConstant:
    """A constant that was read off, and from how many samples."""

    name: str
    value: float
    """In SI units."""
    n_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """Products and readings of one trace."""

    products: tuple[Product, ...]
    readings: tuple[ReadConstant, ...]
    notices: tuple[str, ...]


def trace_result(path: str, target: CalibrationTarget, device: str | None = None, *, launches: bool = True) -> TraceResult:
    """Return products and readings of a trace.

    A reading is held against nothing: one that is far from the base's is not taken.

    Parameters
    ----------
    device
        Device that the user says the trace is of; None where the trace says it.
    launches
        Whether the host time of a launch is read off it.

    Raises
    ------
    ScenarioError
        When it cannot be used, is of another device, or nobody says of which.
    """
    trace, name = read_trace(path), Path(path).name
    check_device(trace.devices, target.accelerator, said=device, file=path)
    products, in_fp32 = _products(trace, target, name)
    samples = {"launch.kernel": gaps_s(trace), "launch.dispatch": intervals_s(trace), "memory_fraction": _shares(trace, target)}
    if not launches:
        del samples["launch.dispatch"]
    # A mean, because what the host loses now and then is lost; gaps and shares have outliers that are no property of theirs.
    means = {"launch.dispatch": fmean}
    read = [
        ReadConstant(name=constant, value=means.get(constant, median)(values), n_samples=len(values))
        for constant, values in samples.items()
        if len(values) >= FEWEST
    ]
    before = {reading.name: constant_of(target.base, reading.name) for reading in read}
    readings = [reading for reading in read if not is_far(before[reading.name], reading.value)]
    far = [f"{move(reading.name, before[reading.name], reading.value)} is not taken" for reading in read if reading not in readings]
    notices = [f"{name}: {len(values)} samples of {constant} are too few" for constant, values in samples.items() if len(values) < FEWEST]
    notices += [f"{name}: {reading.name} rests on {reading.n_samples} samples only" for reading in readings if reading.n_samples < FEW]
    notices += [f"{name}: {each}: a trace alone does not show more than {FAR:.0f} times, since the profiler slows the host" for each in far]
    if not trace.operators:
        notices.append(f"{name}: no shapes of operators; the profiler of PyTorch records them with record_shapes=True")
    if in_fp32:
        notices.append(f"{name}: {in_fp32} products in fp32 are left out, which may have run in tf32")
    if not readings and not products:
        hint = f"{'; '.join(far)}: more than {FAR:.0f} times" if far else "record some steps with record_shapes=True"
        raise ScenarioError(f"{name} says nothing of any constant{' that is believed' if far else ''}", hint=hint)
    return TraceResult(products=tuple(products), readings=tuple(readings), notices=tuple(notices))


def gaps_s(trace: TraceFile) -> list[float]:
    """Return the gaps between kernels on the busiest stream before those that had been issued when the one before ended."""
    busiest = max(grouped((kernel.stream, kernel) for kernel in trace.kernels).values(), key=len)
    return [
        max(0.0, after.start_s - before.end_s)
        for before, after in pairwise(busiest)
        if after.launched_s is not None and after.launched_s < before.end_s
    ]


def intervals_s(trace: TraceFile) -> list[float]:
    """Return the times from launch to launch on each thread of the host, without those in which it waited, and without pauses."""
    found: list[float] = []
    for times in trace.launches_s:
        for before, after in pairwise(times):
            place = bisect_left(trace.waits_s, before)
            if place == len(trace.waits_s) or trace.waits_s[place] >= after:
                found.append(after - before)
    longest = PAUSE * median(found) if found else 0.0
    return [interval for interval in found if interval <= longest]


def _products(trace: TraceFile, target: CalibrationTarget, name: str) -> tuple[list[Product], int]:
    """Return the products with the times of their kernels, and how many in fp32 there are."""
    found: list[Product] = []
    in_fp32 = 0
    for operator, kernels in _kernels_of(trace).items():
        called, tensors = trace.operators[operator]
        matrices = tensors[-2:]
        if called not in PRODUCTS or len(matrices) < 2:
            continue
        precision = TYPES.get(matrices[0].type.lower())
        shape = _shape(*matrices)
        if precision == "fp32":
            in_fp32 += 1
        elif precision in target.accelerator.peak_flops_per_s and precision is not None and shape is not None:
            batch, m, n, k = shape
            e = ELEMENT_BYTES[precision]
            # Which operand is transposed is not recorded, so that any of the three may be the length of a row.
            at_once = vector_bytes(e, m, n, k)
            gemm = Gemm(m, n, k, batch=batch, element_bytes=e, output_bytes=e, vector_bytes=at_once)
            time_s = fsum(kernel.duration_s for kernel in kernels)
            if time_s > 0.0:
                found.append(Product(gemm=gemm, precision=precision, time_s=time_s, file=name, kernel_alone=True))
    return found, in_fp32


def _kernels_of(trace: TraceFile) -> dict[int, list[LaunchedKernel]]:
    """Return the kernels of each operator with known shapes."""
    return grouped((each.operator, each) for each in trace.kernels if each.operator is not None and each.operator in trace.operators)


def _shape(left: TracedTensor, right: TracedTensor) -> tuple[int, int, int, int] | None:
    """Return batch, m, n and k of a product of two tensors."""
    if len(left.dims) != len(right.dims) or len(left.dims) not in (2, 3) or left.dims[-1] != right.dims[-2] or 0 in left.dims + right.dims:
        return None
    return prod(left.dims[:-2]), left.dims[-2], right.dims[-1], left.dims[-1]


def _shares(trace: TraceFile, target: CalibrationTarget) -> list[float]:
    """Return the share of the memory bandwidth that each large elementwise kernel reached."""
    found: list[float] = []
    for operator, kernels in _kernels_of(trace).items():
        traffic_bytes = elementwise_bytes(*trace.operators[operator])
        if traffic_bytes >= FEWEST_BYTES and len(kernels) == 1 and kernels[0].duration_s > 0.0:
            share = traffic_bytes / kernels[0].duration_s / target.accelerator.memory_bandwidth_bytes_per_s
            if share <= 1.0:
                found.append(share)
    return found


def elementwise_bytes(name: str, tensors: Sequence[TracedTensor]) -> float:
    """Return what an elementwise operator moves; 0 for another.

    Examples
    --------
    >>> half = TracedTensor(dims=(1000, 10), type="c10::Half")
    >>> elementwise_bytes("aten::add", (half, half)), elementwise_bytes("aten::mul_", (half,)), elementwise_bytes("aten::mm", (half, half))
    (60000.0, 40000.0, 0.0)
    """
    sizes = [prod(tensor.dims) * ELEMENT_BYTES[TYPES[tensor.type.lower()]] for tensor in tensors if tensor.type.lower() in TYPES]
    if not sizes or len(sizes) < len(tensors):
        return 0.0
    if name == COPY:
        return fsum(sizes)
    if name in ELEMENTWISE:
        return fsum(sizes) + max(sizes)
    if name.endswith("_") and name.removesuffix("_") in ELEMENTWISE:
        return fsum(sizes) + sizes[0]
    return 0.0
