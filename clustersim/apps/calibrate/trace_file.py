"""Traces of the PyTorch profiler (Kineto, Chrome's format): kernels, who launched them, and on which shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.calibrate.trace_device import TracedDevice, devices_of
from clustersim.documents.json_text import place_in, read_json
from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError

MICRO: Final = 1e-6
KERNEL: Final = "kernel"
OPERATOR: Final = "cpu_op"
RUNTIME: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime")
LAUNCHES: Final = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")
WAITS: Final = ("Synchronize", "cudaMemcpy", "hipMemcpy", "cudaMalloc", "cudaFree")
"""Calls during which a host may wait; those that end in Async do not."""
EXTERNAL: Final = ("External id", "external id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTensor:
    """One argument of an operator."""

    dims: tuple[int, ...]
    type: str
    """Such as ``c10::Half``."""


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

    @property
    def end_s(self) -> float:
        """When it ended."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """Contents of a trace from which constants can be read."""

    kernels: tuple[LaunchedKernel, ...]
    """By start."""
    operators: Mapping[int, tuple[str, tuple[TracedTensor, ...]]]
    """Name and tensors of each operator whose shapes were recorded, by its external id."""
    launches_s: tuple[tuple[float, ...], ...]
    """When each thread of the host issued kernels, one after the other."""
    waits_s: tuple[float, ...]
    """When the host began to wait for the accelerator, in order."""
    devices: tuple[TracedDevice, ...]
    """Those that the trace names."""


def read_trace(path: str) -> TraceFile:
    """Return what a trace holds.

    Parameters
    ----------
    path
        A JSON file, also packed by gzip.

    Raises
    ------
    ScenarioError
        When it is no trace, an event is broken, or it holds no kernels.
    """
    name, text, data = read_json(path)
    listed = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(listed, list):
        hint = "export it with prof.export_chrome_trace(...)"
        raise ScenarioError("is no trace: 'traceEvents' is missing", hint=hint, place=Place(file=name))
    under: tuple[str, ...] = ("traceEvents",) if isinstance(data, dict) else ()
    events: list[_Event] = []
    for index, item in enumerate(listed):
        try:
            event = _event(item)
        except _BrokenEvent as broken:
            place = place_in(text, name, (*under, index, *broken.path))
            raise ScenarioError(broken.message, field=".".join(broken.path), hint="a number is expected", place=place) from broken
        if event is not None:
            events.append(event)
    return _trace(events, name, devices_of(data))


class _BrokenEvent(Exception):  # noqa: N818 - never leaves this file
    def __init__(self, path: tuple[str, ...], message: str) -> None:
        self.path, self.message = path, message
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """One event with a duration."""

    kind: str
    name: str
    start_s: float
    duration_s: float
    thread: tuple[str, str]
    arguments: Mapping[str, Data]

    def number(self, *names: str) -> int | None:
        """Return the first of some arguments that is a whole number."""
        return next((value for name in names if isinstance(value := self.arguments.get(name), int)), None)


def _event(item: Data) -> _Event | None:
    """Return an event that has a duration; nothing for others, such as names of threads and arrows."""
    if not isinstance(item, dict) or item.get("ph") != "X":
        return None
    arguments = item.get("args")
    kind = str(item.get("cat", "")).lower()
    if kind not in (KERNEL, OPERATOR, *RUNTIME):
        return None
    return _Event(
        kind=kind,
        name=str(item.get("name", "")),
        start_s=_micros(item, "ts"),
        duration_s=_micros(item, "dur"),
        thread=(str(item.get("pid")), str(item.get("tid"))),
        arguments=arguments if isinstance(arguments, dict) else {},
    )


def _micros(item: Mapping[str, Data], key: str) -> float:
    value = item.get(key, 0.0)
    try:
        return float(value) * MICRO if isinstance(value, int | float | str) else _refuse(key, value)
    except ValueError:
        return _refuse(key, value)


def _refuse(key: str, value: Data) -> float:
    raise _BrokenEvent((key,), f"{value!r} is not a time in microseconds")


def _trace(events: Sequence[_Event], name: str, devices: tuple[TracedDevice, ...]) -> TraceFile:
    runtime = [event for event in events if event.kind in RUNTIME]
    launches = [event for event in runtime if any(word in event.name for word in LAUNCHES)]
    by_correlation = {number: event for event in launches if (number := event.number("correlation")) is not None}
    kernels = sorted((_kernel(event, by_correlation) for event in events if event.kind == KERNEL), key=lambda each: each.start_s)
    if not kernels:
        hint = "record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        raise ScenarioError("holds no kernels", hint=hint, place=Place(file=name))
    threads: dict[tuple[str, str], list[float]] = {}
    for event in sorted(launches, key=lambda each: each.start_s):
        threads.setdefault(event.thread, []).append(event.start_s)
    waits = (event for event in runtime if any(word in event.name for word in WAITS) and not event.name.endswith("Async"))
    return TraceFile(
        kernels=tuple(kernels),
        operators=_operators(events),
        launches_s=tuple(tuple(times) for _, times in sorted(threads.items())),
        waits_s=tuple(sorted(event.start_s for event in waits)),
        devices=devices,
    )


def _kernel(event: _Event, launches: Mapping[int, _Event]) -> LaunchedKernel:
    launch = launches.get(event.number("correlation") or -1)
    operator = event.number(*EXTERNAL)
    if operator is None and launch is not None:
        operator = launch.number(*EXTERNAL)
    return LaunchedKernel(
        start_s=event.start_s,
        duration_s=event.duration_s,
        stream=(str(event.arguments.get("device", event.thread[0])), str(event.arguments.get("stream", event.thread[1]))),
        launched_s=None if launch is None else launch.start_s,
        operator=operator,
    )


def _operators(events: Iterable[_Event]) -> dict[int, tuple[str, tuple[TracedTensor, ...]]]:
    found: dict[int, tuple[str, tuple[TracedTensor, ...]]] = {}
    for event in events:
        number = event.number(*EXTERNAL)
        dims, types = event.arguments.get("Input Dims"), event.arguments.get("Input type")
        if event.kind == OPERATOR and number is not None and isinstance(dims, list) and isinstance(types, list):
            tensors = [_tensor(size, kind) for size, kind in zip(dims, types, strict=False)]
            found[number] = (event.name, tuple(tensor for tensor in tensors if tensor is not None))
    return found


def _tensor(dims: Data, kind: Data) -> TracedTensor | None:
    """Return a tensor; nothing for numbers and lists."""
    if not isinstance(dims, list) or not dims:
        return None
    sizes = [size for size in dims if isinstance(size, int)]
    return TracedTensor(dims=tuple(sizes), type=str(kind)) if len(sizes) == len(dims) else None
