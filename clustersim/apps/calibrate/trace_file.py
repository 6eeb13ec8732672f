"""Reader of traces: of the PyTorch profiler (Kineto, Chrome's format), and of Nsight Systems."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.nsys_file import is_nsys, read_nsys
from clustersim.apps.calibrate.traced import LaunchedKernel, NamedRange, TracedGroup, TracedTensor, TraceFile, devices_of, may_wait
from clustersim.documents.json_text import place_in, read_json
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.units.grouping import grouped

MICRO: Final = 1e-6
KERNEL: Final = "kernel"
COPIES: Final = ("gpu_memcpy", "gpu_memset")
OPERATOR: Final = "cpu_op"
RANGE: Final = "user_annotation"
RUNTIME: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime")
LAUNCHES: Final = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")
HEAD_BYTES: Final = 20_000
GZIP: Final = b"\x1f\x8b"
GZIP_BITS: Final = 31
"""Value of ``wbits`` in zlib for its largest window with a gzip header around it."""
KEYS: Final = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"')
"""One of these stands at the beginning of what PyTorch writes."""
EXTERNAL: Final = ("External id", "external id")


def is_trace(path: str) -> bool:
    """Return whether a file is a trace of a profiler, by how it begins."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as raw:
        head = raw.read(HEAD_BYTES)
    if head[: len(GZIP)] == GZIP:
        with suppress(zlib.error):
            head = zlib.decompressobj(wbits=GZIP_BITS).decompress(head, HEAD_BYTES)
    return is_nsys(path) or any(key in head for key in KEYS)


def read_trace(path: str) -> TraceFile:
    """Return the content of a trace.

    Parameters
    ----------
    path
        A JSON file, also packed by gzip; or the SQLite export of Nsight Systems.

    Raises
    ------
    ScenarioError
        When it is no trace, an event is broken, or it holds no kernels.
    """
    if is_nsys(path):
        return read_nsys(path)
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
    rank, n_ranks = (_distributed(data, key) for key in ("rank", "world_size"))
    return replace(_trace(events, name), devices=devices_of(data), rank=rank, n_ranks=n_ranks)


def _distributed(data: Data, key: str) -> int | None:
    about = data.get("distributedInfo") if isinstance(data, dict) else None
    value = about.get(key) if isinstance(about, dict) else None
    return value if isinstance(value, int) else None


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
    if kind not in (KERNEL, OPERATOR, RANGE, *COPIES, *RUNTIME):
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
        seconds = float(value) * MICRO if isinstance(value, int | float | str) else _refuse(key, value)
    except (ValueError, OverflowError):
        return _refuse(key, value)
    return seconds if isfinite(seconds) and (key != "dur" or seconds >= 0.0) else _refuse(key, value)


def _refuse(key: str, value: Data) -> float:
    raise _BrokenEvent((key,), f"{str(value)[:40]!r} is not a time in microseconds")


def _trace(events: Sequence[_Event], name: str) -> TraceFile:
    runtime = [event for event in events if event.kind in RUNTIME]
    launches = [event for event in runtime if any(word in event.name for word in LAUNCHES)]
    by_correlation = {number: event for event in (*runtime, *launches) if (number := event.number("correlation")) is not None}
    kernels, copies = (
        sorted((_kernel(event, by_correlation) for event in events if event.kind in kinds), key=lambda each: each.start_s)
        for kinds in ((KERNEL,), COPIES)
    )
    if not kernels:
        hint = "record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        raise ScenarioError("holds no kernels", hint=hint, place=Place(file=name))
    threads = grouped((event.thread, event.start_s) for event in sorted(launches, key=lambda each: each.start_s))
    waits = (event for event in runtime if may_wait(event.name))
    return TraceFile(
        kernels=tuple(kernels),
        operators=_operators(events),
        launches_s=tuple(tuple(times) for _, times in sorted(threads.items())),
        waits_s=tuple(sorted(event.start_s for event in waits)),
        devices=(),
        copies=tuple(copies),
        ranges=tuple(
            NamedRange(name=event.name, start_s=event.start_s, end_s=event.start_s + event.duration_s)
            for event in sorted(events, key=lambda each: each.start_s)
            if event.kind == RANGE
        ),
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
        name=event.name,
        collective=str(event.arguments.get("Collective name", "")),
        group=_group(event),
    )


def _group(event: _Event) -> TracedGroup | None:
    name = event.arguments.get("Process Group Name")
    if name is None:
        return None
    return TracedGroup(
        name=str(name),
        description=str(event.arguments.get("Process Group Description", "")),
        ranks=str(event.arguments.get("Process Group Ranks", "")),
        size=event.number("Group size"),
        ends=(event.number("Src Rank"), event.number("Dst Rank")),
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
