"""Measured fused attention, and the fit of its generation's constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.apps.calibrate.fit_products import is_of_another, precision_of
from clustersim.apps.calibrate.fitting import CalibrationPart, CalibrationTarget, Constants, MeasuredTime, Parameter, in_bursts, parameter
from clustersim.apps.calibrate.measurements import FLAGS, Line, measured_file, read_table
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import BEST_ATTENTION
from clustersim.topology.cluster import FloatArray
from clustersim.workloads.operators import FlashAttention

Direction = Literal["forward", "backward"]

GENERATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{f"flash_{number}": f"flash_{number}" for number in (1, 2, 3, 4)},
        **{f"flashattention-{number}": f"flash_{number}" for number in (1, 2, 3, 4)},
        "flashattention": "flash_1",
        "flashattention triton": "flash_1",
        "cudnn": "flash_3",
    }
)
"""Generation of kernels by their name in a table; cuDNN on an H100 is as fast as FlashAttention-3."""
PASSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("forward", "fwd"), "forward"),
        **dict.fromkeys(("backward", "bwd"), "backward"),
        **dict.fromkeys(("forward+backward", "fwd+bwd", "both"), "both"),
    }
)
DIRECTIONS: Final[Mapping[str, tuple[Direction, ...]]] = MappingProxyType(
    {"forward": ("forward",), "backward": ("backward",), "both": ("forward", "backward")}
)
BENCHMARK_TOKENS: Final = 16384
BENCHMARK_HIDDEN: Final = 2048
"""Tokens and width of the benchmark of FlashAttention, for a table without sequences and heads."""
COLUMNS: Final = {
    "implementation": ("impl", "generation"),
    "dtype": ("precision",),
    "pass": ("direction",),
    "causal": (),
    "head_dim": ("d",),
    "sequence_length": ("seq_len", "seqlen", "s"),
    "batch": ("batch_size",),
    "heads": ("n_heads", "num_heads"),
    "kv_heads": ("n_kv_heads", "num_kv_heads"),
    "accelerator": (),
    "flops_per_s": (),
    "tflops": ("tflop_per_s", "tflops_per_s"),
    "time_s": ("seconds",),
    "time_ms": ("ms",),
    "time_us": ("us", "duration_us"),
}
NEEDED: Final = ("implementation", "dtype", "pass", "causal", "head_dim", "sequence_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """One measured call, or a forward and a backward one together."""

    kernels: tuple[FlashAttention, ...]
    generation: str
    precision: str
    time_s: float
    file: str

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Which passes were measured together."""
        return tuple("backward" if kernel.backward else "forward" for kernel in self.kernels)


def attention_part(paths: Sequence[str], target: CalibrationTarget) -> CalibrationPart:
    """Return the measured attention of some files and the constants that it may move.

    Columns: ``implementation`` (``flash_2``, ``FlashAttention-2``, ``cuDNN``, ...), ``dtype``, ``pass`` (``forward``, ``backward`` or
    ``forward+backward``), ``causal``, ``head_dim``, ``sequence_length``, and one of ``time_s``, ``time_ms``, ``time_us``, ``flops_per_s``
    and ``tflops``, of which a causal mask counts half; if wanted ``batch``, ``heads``, ``kv_heads`` and ``accelerator``.

    Raises
    ------
    ScenarioError
        At the first cell that cannot be used, or when no line can.
    """
    found: list[Attended] = []
    notices: list[str] = []
    for path in paths:
        lines = read_table(path, COLUMNS, NEEDED)
        own = [line for line in lines if not is_of_another(line, target)]
        if len(own) < len(lines):
            notices.append(f"{measured_file(path).name}: {len(lines) - len(own)} rows of other accelerators are left out")
        if any("batch" not in line.cells or "heads" not in line.cells for line in own):
            sizes = f"{BENCHMARK_TOKENS} tokens and a width of {BENCHMARK_HIDDEN}"
            notices.append(f"{measured_file(path).name}: where sequences or heads are not given, {sizes} are taken")
        found += [_attended(line, target, measured_file(path).name) for line in own]
    if not found:
        raise ScenarioError(f"no attention was measured on {target.accelerator.name}", hint="check the column 'accelerator'")

    def predict(constants: Constants) -> FloatArray:
        calibration = constants[target.generation]
        models = {precision: in_bursts(target, calibration, precision) for precision in {each.precision for each in found}}
        return np.array([models[each.precision].work_s(each.kernels) for each in found])

    return CalibrationPart(
        name="attention",
        files=tuple(measured_file(path) for path in paths),
        measured=tuple(MeasuredTime(file=each.file, what=_what(each), time_s=each.time_s) for each in found),
        predict=predict,
        parameters=_parameters(found, target),
        notices=tuple(notices),
    )


def _attended(line: Line, target: CalibrationTarget, name: str) -> Attended:
    generation = line.choice("implementation", GENERATIONS)
    known = [each for each in target.base.attention if each != BEST_ATTENTION]
    if generation not in known:
        hint = f"the base knows {', '.join(known)}; name another with --base"
        raise line.error("implementation", f"nothing is known of {generation} in {target.base.name}", hint)
    precision = precision_of(line, target)
    if precision not in ("fp16", "bf16"):
        raise line.error("dtype", f"attention in {precision} is not modelled", "measure it in fp16 or bf16")
    length, width = line.whole("sequence_length"), line.whole("head_dim")
    heads = line.whole("heads", max(1, BENCHMARK_HIDDEN // width))
    causal = line.choice("causal", FLAGS) == "true"
    shape = (line.whole("batch", max(1, BENCHMARK_TOKENS // length)), heads, line.whole("kv_heads", heads), length, length, width, causal)
    directions = DIRECTIONS[line.choice("pass", PASSES)]
    kernels = tuple(FlashAttention(*shape, way == "backward", generation=generation) for way in directions)
    work = fsum(kernel.flops * kernel.done_fraction for kernel in kernels)
    return Attended(kernels=kernels, generation=generation, precision=precision, time_s=line.seconds(work), file=name)


def _parameters(found: Sequence[Attended], target: CalibrationTarget) -> tuple[Parameter, ...]:
    """Return the free constants of attention: directions measured only together keep their proportions."""
    parameters: list[Parameter] = []
    for generation in dict.fromkeys(each.generation for each in found):
        rows = [each for each in found if each.generation == generation]
        apart: list[Direction] = [way for way in ("forward", "backward") if any(each.directions == (way,) for each in rows)]
        together = any(len(each.directions) == 2 for each in rows)
        groups: list[tuple[Direction, ...]] = [(way,) for way in apart]
        if together and len(apart) < 2:
            rest: tuple[Direction, ...] = tuple(way for way in ("forward", "backward") if way not in apart)
            groups.append(rest)
        for ways in groups:
            at = [f"attention.{generation}.{way}" for way in ways]
            parameters.append(parameter(target, *(f"{each}.fraction" for each in at), spread=0.3, most=1.0))
            parameters.append(parameter(target, *(f"{each}.half_length" for each in at), spread=1.0, floor=10.0))
            parameters.append(parameter(target, *(f"{each}.causal_half_length" for each in at), spread=1.0, floor=10.0))
        parameters.append(parameter(target, f"attention.{generation}.half_head_dim", spread=1.0, floor=1.0))
    return tuple(parameters)


def _what(each: Attended) -> str:
    kernel = each.kernels[0]
    mask = ", causal" if kernel.causal else ""
    return f"{each.generation} {' and '.join(each.directions)}, {kernel.query_length} tokens, heads of {kernel.head_dim}{mask}"
