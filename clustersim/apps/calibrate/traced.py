"""Contents of a profiler trace: kernels, who launched them, on which shapes, and named ranges of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clustersim.apps.calibrate.trace_device import TracedDevice

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
