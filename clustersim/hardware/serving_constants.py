"""Fitted constants of kernels and collectives in inference, by accelerator, framework and number format."""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import Field, TypeAdapter

from clustersim.documents.files import data_path
from clustersim.errors import DomainError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_accelerator
from clustersim.hardware.models import Accelerator

T = TypeVar("T")

KernelFamily = Literal["product", "decode_attention", "prefill_attention", "latent_decode", "experts"]
WeightFormat = Literal["bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "mxfp4_mxfp8", "int8", "int8_weights", "int4"]
"""Number format of the weights of a product. ``fp8_block`` has a scale for each block of 128 x 128; ``int8_weights`` and ``int4`` are
weight-only and multiply in 16 bits; ``mxfp4`` is that of the experts of GPT-OSS, ``mxfp4_mxfp8`` the same with activations of 8 bits."""

ServingFramework = Literal["vllm", "sglang", "tensorrt_llm"]
FRAMEWORKS: Final[tuple[ServingFramework, ...]] = get_args(ServingFramework)
"""Frameworks whose kernels others may borrow; those of another name serve that one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """Memory of a number format, and the multiplication rate of its kernels."""

    weight_bytes: float
    """Bytes of one weight, its share of the scales included."""
    rate: float
    """Dense peak over that of bf16."""
    gathered_bytes: float = 2.0
    """Bytes of one activation that is gathered for such products, where an engine casts before it."""
    needs: str | None = None
    """Precision of the accelerator's peaks, or its scaled format, that such products need; without it they are weight-only."""


FORMATS: Final[Mapping[str, NumberFormat]] = MappingProxyType(
    {
        "bf16": NumberFormat(weight_bytes=2.0, rate=1.0),
        "fp8": NumberFormat(weight_bytes=1.0, rate=2.0, gathered_bytes=1.0, needs="fp8"),
        "fp8_block": NumberFormat(weight_bytes=1.0, rate=2.0, needs="fp8"),
        # Sixteen elements share a scale of 8 bits, or thirty-two in mxfp4.
        "nvfp4": NumberFormat(weight_bytes=0.5625, rate=4.0, gathered_bytes=0.5, needs="nvfp4"),
        "mxfp4": NumberFormat(weight_bytes=0.53125, rate=1.0),
        "mxfp4_mxfp8": NumberFormat(weight_bytes=0.53125, rate=2.0, gathered_bytes=1.0, needs="nvfp4"),
        "int8": NumberFormat(weight_bytes=1.0, rate=2.0, gathered_bytes=1.0),
        "int8_weights": NumberFormat(weight_bytes=1.0, rate=1.0),
        "int4": NumberFormat(weight_bytes=0.5, rate=1.0),
    }
)
WEIGHT_ONLY: Final[Mapping[str, str]] = MappingProxyType({"fp8": "int8_weights", "fp8_block": "int8_weights", "nvfp4": "int4"})
"""Formats as which accelerators run others that their matrix units do not have."""

ALIKE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fp8": ("fp8_block", "bf16"),
        "fp8_block": ("fp8", "bf16"),
        "nvfp4": ("fp8", "bf16"),
        "mxfp4": ("int4", "bf16"),
        # The same kernels, with the products at half the rate.
        "mxfp4_mxfp8": ("nvfp4", "mxfp4"),
        "int8": ("fp8", "bf16"),
        "int8_weights": ("int4", "bf16"),
        "int4": ("mxfp4", "int8_weights", "bf16"),
    }
)
"""Formats whose shares a format without measurements borrows, nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """Constants of one family of kernels on one accelerator, as :func:`clustersim.kernels.kernel_model.kernel_s` has them."""

    accelerator: str
    framework: str
    family: Annotated[str, Field(alias="kernel")]
    format: str
    floor_s: float
    """Time of the smallest kernel inside a graph."""
    bandwidth_fraction: float
    """Share of the memory bandwidth with which weights or a cache are read."""
    peak_fraction: float
    """Share of the dense peak."""
    activation_passes: float
    """Number of passes of the activations through memory."""
    cast_s: float
    """Time of one element that is cast before a product."""
    spread: float
    """Loss of bandwidth at middling sizes: this many roots of a second times the root of the time at full bandwidth."""


BLOCK_SCALED: Final = ("fp8_block", "nvfp4")
"""Formats whose operands are cast apart from the product."""
CAST_FLOOR_S: Final = 3.7e-6
"""Time of the smallest such cast inside a graph: the floors of the products in ``kernels.csv``, less those in 16 bits, are 3.7 us (fp8 in
blocks on H100), 3.6 us (H200), 4.0 us (B200) and 3.6 us (nvfp4 of vLLM on B200)."""

MOST_PEAK_FRACTION: Final = 0.9
"""Largest borrowed share of a peak; assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveConstants:
    """Time of a collective inside a node: ``floor + min(a bytes, two_shot + b bytes)``."""

    accelerator: str
    library: str
    operation: str
    n_ranks: Annotated[int, Field(alias="ranks")]
    floor_s: float
    one_shot_s_per_byte: float
    two_shot_s: float
    two_shot_s_per_byte: float


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Constants that another accelerator, framework or format lends."""

    what: str
    """Kernel or collective, such as ``product in fp8``."""
    accelerator: str
    lender: str
    """Accelerator that they were measured on."""
    lent: str
    """Kernel or collective that they were measured of."""


def borrowed_notes(borrowed: Iterable[Borrowed]) -> tuple[str, ...]:
    """Return which constants were not measured, in a line for each accelerator that lends some."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in borrowed:
        text = each.what if each.lent == each.what else f"{each.what} as {each.lent}"
        found.setdefault((each.accelerator, each.lender), {})[text] = None
    return tuple(
        f"not measured on {accelerator}, and taken from {lender if lender != accelerator else 'what is alike'}: {', '.join(texts)}"
        for (accelerator, lender), texts in found.items()
    )


_UNMEASURED: Final[ContextVar[frozenset[str]]] = ContextVar("unmeasured", default=frozenset())


@contextmanager
def without_measurements(accelerators: Iterable[str]) -> Generator[None]:
    """Take some accelerators as unmeasured, so that others lend their constants."""
    token = _UNMEASURED.set(frozenset(accelerators))
    try:
        yield
    finally:
        _UNMEASURED.reset(token)


def executed_format(accelerator: Accelerator, wanted: str) -> str:
    """Return the format in which an accelerator multiplies: weight-only where its matrix units do not have the one wanted.

    Raises
    ------
    DomainError
        There is no such format.
    """
    if wanted not in FORMATS:
        raise DomainError(f"unknown number format '{wanted}'", path=("precision",), hint=f"use one of {', '.join(FORMATS)}")
    needs = FORMATS[wanted].needs
    if wanted == "mxfp4" and "nvfp4" in accelerator.scaled_formats:
        return "mxfp4_mxfp8"
    has = needs is None or needs in accelerator.peak_flops_per_s or needs in accelerator.scaled_formats
    return wanted if has else WEIGHT_ONLY[wanted]


def kernel_constants(
    accelerator: Accelerator, framework: str, family: KernelFamily, wanted: str
) -> tuple[KernelConstants, Borrowed | None]:
    """Return the constants of a family of kernels, and from where they are borrowed where they were not measured.

    Measured ones come first; then those of another framework on the same accelerator, of the same generation, and of the accelerator
    whose bandwidth is nearest; and the same again for formats that are alike. Shares of peak and bandwidth carry over; floors do too.
    """
    known = [each for each in _rows("kernels.csv", KernelConstants) if each.accelerator not in _UNMEASURED.get()]
    order = (framework, *FRAMEWORKS)
    table = [each for each in known if each.family == family and each.framework in order]
    for number_format in (wanted, *ALIKE.get(wanted, ())):
        rows = [each for each in table if each.format == number_format]
        for name in _lenders(accelerator, {each.accelerator for each in rows}):
            own = [each for each in rows if each.accelerator == name]
            best = min(own, key=lambda each: order.index(each.framework))
            if (best.accelerator, best.format) == (accelerator.name, wanted):
                return best, None
            whats = (f"{family.replace('_', ' ')} in {each}" for each in (wanted, best.format))
            lent = Borrowed(next(whats), accelerator.name, best.accelerator, next(whats))
            return replace(best, peak_fraction=_at_power(best.peak_fraction, accelerator, load_accelerator(name))), lent
    raise DomainError(f"no constants of {family} in {wanted}", hint="add a row to hardware_profiles/serving/kernels.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConstants:
    """Time of an exchange of tokens among the experts of a node: a floor, and the bytes that leave a rank."""

    accelerator: str
    mode: str
    n_multiprocessors: Annotated[int, Field(alias="multiprocessors")]
    """Multiprocessors that its kernels keep from others."""
    dispatch_floor_s: float
    dispatch_bytes_per_s: float
    combine_floor_s: float
    combine_bytes_per_s: float


def exchange_constants(accelerator: Accelerator) -> tuple[tuple[ExchangeConstants, ...], Borrowed | None]:
    """Return the constants of each kind of exchange, and from where they are borrowed: at the ratio of the links."""
    rows = [row for row in _rows("expert_exchange.csv", ExchangeConstants) if row.accelerator not in _UNMEASURED.get()]
    name = next(_lenders(accelerator, {row.accelerator for row in rows}))
    ratio = _link_bandwidth(accelerator) / _link_bandwidth(load_accelerator(name))
    what = "exchange of tokens among experts"
    constants = tuple(
        replace(row, dispatch_bytes_per_s=row.dispatch_bytes_per_s * ratio, combine_bytes_per_s=row.combine_bytes_per_s * ratio)
        for row in rows
        if row.accelerator == name
    )
    return constants, None if name == accelerator.name else Borrowed(what, accelerator.name, name, what)


def _at_power(peak_fraction: float, accelerator: Accelerator, lender: Accelerator) -> float:
    """Return a share of the peak as it carries over to an accelerator with another power limit.

    Kernels that compute are held at the power limit, and the rate follows the power that there is for each FLOP/s of peak, with the
    exponent of the calibration.
    """
    budgets = [each.power_w / each.peak_16_flops_per_s for each in (accelerator, lender) if each.power_w is not None]
    if len(budgets) < 2:
        return peak_fraction
    ratio = (budgets[0] / budgets[1]) ** calibration_for(accelerator).gemm.power_exponent
    return min(peak_fraction * ratio, max(peak_fraction, MOST_PEAK_FRACTION))


def without_casts(constants: KernelConstants, plain: KernelConstants) -> KernelConstants:
    """Return the constants of a product whose operands norms and activations cast: its floor is that of a product in 16 bits.

    Blocks of an operand that have a scale each are cast by a kernel of their own.
    """
    if constants.family != "product":
        return constants
    if constants.format in BLOCK_SCALED:
        return replace(constants, floor_s=min(constants.floor_s, plain.floor_s + CAST_FLOOR_S))
    return replace(constants, floor_s=min(constants.floor_s, plain.floor_s), cast_s=0.0)


def collective_constants(
    accelerator: Accelerator, library: str, operation: str, n_ranks: int
) -> tuple[CollectiveConstants, Borrowed | None]:
    """Return the constants of a collective of some ranks in a node, and from where they are borrowed.

    Costs of bytes are scaled by the ratio of the links; ranks that were not measured take those of the nearest count above, or the most.
    """
    of = [
        each
        for each in _rows("collectives.csv", CollectiveConstants)
        if each.operation == operation and each.accelerator not in _UNMEASURED.get()
    ]
    rows = [each for each in of if each.library == library] or [each for each in of if each.library == "nccl"]
    name = next(_lenders(accelerator, {each.accelerator for each in rows}))
    own = sorted((each for each in rows if each.accelerator == name), key=lambda each: each.n_ranks)
    best = next((each for each in own if each.n_ranks >= n_ranks), own[-1])
    lent = (
        None
        if name == accelerator.name and best.n_ranks == n_ranks
        else Borrowed(f"{operation} of {n_ranks} ranks", accelerator.name, name, f"{operation} of {best.n_ranks} ranks")
    )
    ratio = _link_bandwidth(load_accelerator(name)) / _link_bandwidth(accelerator)
    one_shot_s_per_byte, two_shot_s_per_byte = best.one_shot_s_per_byte * ratio, best.two_shot_s_per_byte * ratio
    return replace(best, n_ranks=n_ranks, one_shot_s_per_byte=one_shot_s_per_byte, two_shot_s_per_byte=two_shot_s_per_byte), lent


def _link_bandwidth(accelerator: Accelerator) -> float:
    return accelerator.scale_up_bandwidth_bytes_per_s or accelerator.pcie_bandwidth_bytes_per_s


def _lenders(accelerator: Accelerator, names: set[str]) -> Iterator[str]:
    """Yield accelerators with measurements: itself, its generation, then by the ratio of bandwidths, those with similar links first."""
    known = [load_accelerator(name) for name in sorted(names)]
    switched = accelerator.scale_up_bandwidth_bytes_per_s > 0

    def distance(other: Accelerator) -> tuple[bool, bool, bool, float, str]:
        ratio = abs(log(other.memory_bandwidth_bytes_per_s / accelerator.memory_bandwidth_bytes_per_s))
        unlike = (other.scale_up_bandwidth_bytes_per_s > 0) != switched
        return other.name != accelerator.name, unlike, other.generation != accelerator.generation, ratio, other.name

    yield from (each.name for each in sorted(known, key=distance))


@lru_cache
def _rows(name: str, kind: type[T]) -> tuple[T, ...]:
    rows = csv.DictReader((data_path("hardware_profiles") / "serving" / name).read_text("utf-8").splitlines())
    table = TypeAdapter(kind)
    return tuple(table.validate_python(row) for row in rows)
