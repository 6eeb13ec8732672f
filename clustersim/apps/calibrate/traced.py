"""Contents of a profiler trace: kernels, who launched them, on which shapes, and named ranges of the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.models import Accelerator
from clustersim.units.quantity import format_quantity

MEMORY: Final = 1.15
"""Times: a device reports up to 7 % more than its data sheet (GiB for GB), and the next size of one model is 17 % more (H100 NVL)."""
FORMS: Final = ("sxm", "pcie")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedDevice:
    """One device as the profiler names it."""

    name: str
    memory_bytes: float | None


def devices_of(data: Data) -> tuple[TracedDevice, ...]:
    """Return the devices that a trace names in ``deviceProperties``."""
    listed = data.get("deviceProperties") if isinstance(data, dict) else None
    found: list[TracedDevice] = []
    for item in listed if isinstance(listed, list) else []:
        name = item.get("name") if isinstance(item, dict) else None
        memory = item.get("totalGlobalMem") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            found.append(TracedDevice(name=name, memory_bytes=float(memory) if isinstance(memory, int | float) else None))
    return tuple(dict.fromkeys(found))


def check_device(
    devices: Sequence[TracedDevice], accelerator: Accelerator, *, said: str | None, file: str, use: str = "calibrated"
) -> None:
    """Refuse a trace, or a measurement, of another device.

    Parameters
    ----------
    said
        Device that the user says the trace is of, which stands above what the trace says.
    use
        Purpose of the accelerator: ``calibrated`` or ``simulated``.

    Raises
    ------
    ScenarioError
        When the device is another, or nobody says which it is.
    """
    if said is not None:
        if not is_of(said, accelerator.name):
            message = f"'{said}' is not {accelerator.name}, which is {use}"
            raise ScenarioError(message, field="--device", hint="take the accelerator that was traced; see clustersim show accelerators")
        return
    if not devices:
        hint = f"if it was recorded on {accelerator.name}, add --device {model_of(accelerator.name)}"
        raise ScenarioError("does not say which device it is of", hint=hint, place=Place(file=file))
    for device in devices:
        size = "" if device.memory_bytes is None else f" with {format_quantity(device.memory_bytes, 'B', 3)}"
        if not is_of(device.name, accelerator.name) or not _holds(device.memory_bytes, accelerator.memory_bytes):
            memory = format_quantity(accelerator.memory_bytes, "B", 3)
            message = f"is of {device.name}{size}, and {accelerator.name} with {memory} is {use}"
            hint = "take the accelerator that was measured, or say with --device what it is if the file is wrong"
            raise ScenarioError(message, hint=hint, place=Place(file=file))


def model_of(accelerator: str) -> str:
    """Return the model in the name of a shipped accelerator."""
    return accelerator.partition("-")[0]


def is_of(device: str, accelerator: str) -> bool:
    """Return whether a driver would call an accelerator so: its model is a word, or several, and no other form factor is named.

    Examples
    --------
    >>> [is_of(name, "a100-sxm4-40g") for name in ("NVIDIA A100-PG509-200", "NVIDIA A100-PCIE-40GB", "Tesla V100-SXM2-16GB", "a100")]
    [True, False, False, True]
    >>> is_of("NVIDIA GeForce RTX 4090", "rtx4090"), is_of("NVIDIA GH200 480GB", "h200-sxm")
    (True, False)
    """
    words = re.findall(r"[a-z0-9]+", device.lower())
    runs = ("".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1))
    forms, own = _forms(words), _forms(accelerator.split("-"))
    return model_of(accelerator) in runs and (not forms or not own or forms == own)


def _forms(words: Sequence[str]) -> set[str]:
    return {form for form in FORMS for word in words if word.startswith(form)}


def _holds(reported_bytes: float | None, memory_bytes: float) -> bool:
    return reported_bytes is None or 1 / MEMORY < reported_bytes / memory_bytes < MEMORY


WAITS: Final = ("Synchronize", "cudaMemcpy", "hipMemcpy", "cudaMalloc", "cudaFree")
"""Calls during which a host may wait; those that end in Async do not."""


def may_wait(call: str) -> bool:
    """Return whether a host may wait for the accelerator in a call of the runtime, whose name may end in a version.

    Examples
    --------
    >>> [may_wait(name) for name in ("cudaDeviceSynchronize", "cudaMemcpyAsync_v3020", "cudaLaunchKernel")]
    [True, False, False]
    """
    return any(word in call for word in WAITS) and not call.partition("_v")[0].endswith("Async")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTensor:
    """One argument of an operator."""

    dims: tuple[int, ...]
    type: str
    """Such as ``c10::Half``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGroup:
    """Process group of a collective, or the ends of a send, as PyTorch names them."""

    name: str
    description: str
    ranks: str
    """As text, which a long list is cut in."""
    size: int | None
    ends: tuple[int | None, int | None] = (None, None)
    """Ranks of the sender and of the receiver of a send, of which the trace of one end names the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedKernel:
    """One kernel on the accelerator; times in seconds."""

    start_s: float
    duration_s: float
    stream: tuple[str, str]
    """Device and stream."""
    launched_s: float | None
    """When the host issued it."""
    operator: int | None
    """External id of the operator that it belongs to."""
    name: str = ""
    collective: str = ""
    """Name of the operation in PyTorch, where the trace has it: the name of an NCCL kernel is ambiguous."""
    group: TracedGroup | None = None
    """None where the trace does not say it."""

    @property
    def end_s(self) -> float:
        """When it ended."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRange:
    """A named stretch of host time, such as a step or the update of an optimizer; times in seconds."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """Contents of a trace from which constants can be read."""

    kernels: tuple[LaunchedKernel, ...]
    """By start."""
    operators: Mapping[int, tuple[str, tuple[TracedTensor, ...]]]
    """Name and tensors of each operator whose shapes were recorded, by its external id."""
    launches_s: tuple[tuple[float, ...], ...]
    """Times at which each thread of the host issued kernels, in order."""
    waits_s: tuple[float, ...]
    """Times at which the host began to wait for the accelerator, in order."""
    devices: tuple[TracedDevice, ...]
    """Those that the trace names."""
    copies: tuple[LaunchedKernel, ...] = ()
    """Copies and fills of memory, by start."""
    ranges: tuple[NamedRange, ...] = ()
    """Ranges that the program or the profiler named on the host, by start."""
    rank: int | None = None
    """None where the trace does not say it."""
    n_ranks: int | None = None
