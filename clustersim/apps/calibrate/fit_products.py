"""Measured matrix products, and the fit of tiles, depth and sustained rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clustersim.apps.calibrate.fitting import CalibrationPart, CalibrationTarget, Constants, MeasuredTime, Parameter, in_bursts, parameter
from clustersim.apps.calibrate.measurements import FLAGS, PRECISIONS, Line, MeasuredFile, measured_file, read_table
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import TILES, tile_areas
from clustersim.hardware.catalog import profile_names
from clustersim.topology.cluster import FloatArray
from clustersim.workloads.operators import Gemm

FEWEST_ROWS: Final = 512
"""Products of fewer rows are not fitted: they say more about the launch of a kernel than about its rate."""
ELEMENT_BYTES: Final = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
SIXTEEN_BITS: Final = ("fp16", "bf16")
LAYOUTS: Final = {name: name for name in ("nn", "nt", "tn", "tt")}
COLUMNS: Final = {
    "m": (),
    "n": (),
    "k": (),
    "batch": ("b", "batch_count"),
    "dtype": ("precision",),
    "result_dtype": ("output_dtype", "out_dtype"),
    "layout": ("trans",),
    "accumulates": (),
    "accelerator": (),
    "flops_per_s": (),
    "tflops": ("tflop_per_s", "tflops_per_s"),
    "time_s": ("seconds",),
    "time_ms": ("ms",),
    "time_us": ("us", "duration_us"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One measured product."""

    gemm: Gemm
    precision: str
    time_s: float
    file: str
    kernel_alone: bool = False
    """Whether the time is that of the kernel, without the gap before it."""


def read_products(path: str, target: CalibrationTarget) -> tuple[list[Product], int]:
    """Return the products of a CSV file, and how many lines are of other accelerators.

    Columns: ``m``, ``n``, ``k``, ``dtype``, and one of ``time_s``, ``time_ms``, ``time_us``, ``flops_per_s`` and ``tflops``; if wanted
    ``batch``, ``result_dtype``, ``layout`` (``NT`` adds the result to memory, as weight gradients do, unless ``accumulates`` says no) and
    ``accelerator``.
    """
    name = measured_file(path).name
    found: list[Product] = []
    others = 0
    for line in read_table(path, COLUMNS, ("m", "n", "k", "dtype")):
        if is_of_another(line, target):
            others += 1
            continue
        found.append(_product(line, target, name))
    return found, others


def is_of_another(line: Line, target: CalibrationTarget) -> bool:
    """Return whether a line is of another accelerator than the one that is calibrated; without a word it is not."""
    name = line.choice("accelerator", {each: each for each in profile_names("accelerators")}, target.accelerator.name)
    return name != target.accelerator.name


def precision_of(line: Line, target: CalibrationTarget, column: str = "dtype") -> str:
    """Return a precision that the accelerator has.

    Raises
    ------
    ScenarioError
        When it has not, or there is no such precision.
    """
    precision = line.choice(column, PRECISIONS)
    peaks = target.accelerator.peak_flops_per_s
    if precision not in peaks:
        raise line.error(column, f"{target.accelerator.name} has no {precision}", f"it has {', '.join(peaks)}")
    return precision


def _product(line: Line, target: CalibrationTarget, name: str) -> Product:
    precision = precision_of(line, target)
    result = line.choice("result_dtype", PRECISIONS, "fp32" if precision in ("fp32", "tf32") else "fp16")
    adds = line.choice("accumulates", FLAGS, "true" if line.choice("layout", LAYOUTS, "nn") == "nt" else "false")
    gemm = Gemm(
        line.whole("m"),
        line.whole("n"),
        line.whole("k"),
        batch=line.whole("batch", 1),
        element_bytes=ELEMENT_BYTES[precision],
        output_bytes=ELEMENT_BYTES[result],
        accumulates=adds == "true",
    )
    time_s = line.seconds(gemm.flops)
    peak = target.accelerator.peak_flops_per_s[precision]
    if gemm.flops / time_s > peak:
        rate = f"{gemm.flops / time_s / 1e12:.4g} TFLOP/s beat the peak of {peak / 1e12:.4g} TFLOP/s in {precision}"
        column = next(column for column in ("time_s", "time_ms", "time_us", "flops_per_s", "tflops") if column in line.cells)
        raise line.error(column, rate, "check the unit, the precision and the accelerator")
    return Product(gemm=gemm, precision=precision, time_s=time_s, file=name)


def products_part(
    paths: Sequence[str], target: CalibrationTarget, traced: Sequence[Product] = (), traces: Sequence[MeasuredFile] = ()
) -> CalibrationPart:
    """Return the measured products of some files and the constants that they may move.

    Parameters
    ----------
    traced, traces
        Further products, and the files that they are from.
    """
    found: list[Product] = [*traced]
    notices: list[str] = []
    for path in paths:
        products, others = read_products(path, target)
        if others:
            notices.append(f"{measured_file(path).name}: {others} products of other accelerators are left out")
        found += products
    return part_of(found, target, [*(measured_file(path) for path in paths), *traces], notices)


def part_of(
    products: Sequence[Product], target: CalibrationTarget, files: Sequence[MeasuredFile], notices: Sequence[str] = ()
) -> CalibrationPart:
    """Return products as a part; those of few rows are left out.

    Raises
    ------
    ScenarioError
        When none is left.
    """
    used = [each for each in products if each.gemm.m >= FEWEST_ROWS]
    few = len(products) - len(used)
    if not used:
        raise ScenarioError(f"no product of {target.accelerator.name} has {FEWEST_ROWS} rows or more", hint="measure larger products")
    further = (f"{few} products of fewer than {FEWEST_ROWS} rows are not fitted",) if few else ()

    def predict(constants: Constants) -> FloatArray:
        calibration = constants[target.generation]
        models = {precision: in_bursts(target, calibration, precision) for precision in {each.precision for each in used}}
        gap_s = calibration.launch.kernel_s
        return np.array([models[each.precision].kernel_s(each.gemm) - (gap_s if each.kernel_alone else 0.0) for each in used])

    return CalibrationPart(
        name="gemm",
        files=tuple(files),
        measured=tuple(MeasuredTime(file=each.file, what=_what(each), time_s=each.time_s) for each in used),
        predict=predict,
        parameters=_parameters(used, target),
        notices=(*notices, *further),
    )


def _parameters(products: Sequence[Product], target: CalibrationTarget) -> tuple[Parameter, ...]:
    """Return what products may move: tiles and depth, if there are some in 16 bits; and the sustained rate of each other precision."""
    precisions = dict.fromkeys(each.precision for each in products)
    found: list[Parameter] = []
    if any(precision in SIXTEEN_BITS for precision in precisions):
        found.append(parameter(target, "gemm.sustained_fraction.default", spread=0.3, most=1.0))
        found.append(parameter(target, "gemm.depth_overhead", spread=1.0, floor=1.0))
        shares = [parameter(target, f"{TILES}{area}", spread=0.2, most=1.0) for area in tile_areas(target.base)[1:]]
        found += [replace(share, tried_at_most=True) for share in shares]
    others = [precision for precision in precisions if precision not in SIXTEEN_BITS]
    return (*found, *(parameter(target, f"gemm.sustained_fraction.{precision}", spread=0.3, most=1.0) for precision in others))


def _what(product: Product) -> str:
    gemm = product.gemm
    times = f" x {gemm.batch}" if gemm.batch > 1 else ""
    return f"{gemm.m} x {gemm.n} x {gemm.k}{times} in {product.precision}"
