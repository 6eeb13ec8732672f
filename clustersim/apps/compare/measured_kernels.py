"""Kernels of the steps of a trace by class."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.calibrate.traced import LaunchedKernel, NamedRange, TraceFile
from clustersim.apps.compare.kernel_names import (
    COMMUNICATION,
    HOST_COPIES,
    UNKNOWN,
    ClassTime,
    KernelNames,
    StepKernels,
    covered_s,
    matches,
)
from clustersim.errors import Place, ScenarioError

_BESIDE: Final = (*COMMUNICATION, HOST_COPIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Mean step of one rank."""

    file: str
    rank: int | None
    n_ranks: int | None
    markers: tuple[str, ...]
    """Names of the steps."""
    mean: StepKernels
    unknown: Mapping[str, float]
    """Seconds of a step of each name that is in no class, longest first."""


def measured_steps(trace: TraceFile, names: KernelNames, file: str) -> MeasuredSteps:
    """Return the mean of the steps of a trace.

    Raises
    ------
    ScenarioError
        When it marks no steps, or holds several devices.
    """
    steps = steps_of(trace, names, file)
    if not steps:
        hint = "call prof.step() behind each step, or name an NVTX range 'step 1'; --names FILE adds names under 'steps'"
        raise ScenarioError("does not mark its steps", place=Place(file=file), hint=hint)
    return _mean(trace, names, file, steps)


def steps_of(trace: TraceFile, names: KernelNames, file: str) -> list[tuple[NamedRange, list[LaunchedKernel]]]:
    """Return the steps of a trace with their kernels and copies; none where it marks none.

    A kernel belongs to the step in which the host issued it.

    Raises
    ------
    ScenarioError
        When it holds several devices, or no kernel was issued inside its steps.
    """
    place = Place(file=file)
    devices = {kernel.stream[0] for kernel in trace.kernels}
    if len(devices) > 1:
        hint = "give one file for each rank"
        raise ScenarioError(f"holds kernels of {len(devices)} devices", place=place, hint=hint)
    launched = sorted((*trace.kernels, *trace.copies), key=_issued_s)
    issued_s = [_issued_s(kernel) for kernel in launched]
    steps: list[tuple[NamedRange, list[LaunchedKernel]]] = []
    markers = _markers(trace.ranges, names.steps)
    for marker in markers:
        first, last = bisect_right(issued_s, marker.start_s), bisect_right(issued_s, marker.end_s)
        if first < last:
            steps.append((marker, launched[first:last]))
    if markers and not steps:
        raise ScenarioError("issues no kernel inside its steps", place=place, hint="record whole steps, with activities of CPU and CUDA")
    return steps


def _issued_s(kernel: LaunchedKernel) -> float:
    return kernel.start_s if kernel.launched_s is None else kernel.launched_s


def _markers(ranges: Sequence[NamedRange], patterns: Sequence[str]) -> list[NamedRange]:
    """Return the ranges of steps: the outermost ranges of the first pattern that matches any."""
    for pattern in patterns:
        found = [each for each in ranges if matches(each.name, [pattern])]
        outer: list[NamedRange] = []
        for each in sorted(found, key=lambda each: (each.start_s, -each.end_s)):
            if not outer or each.start_s >= outer[-1].end_s:
                outer.append(each)
        if outer:
            return outer
    return []


def _mean(trace: TraceFile, names: KernelNames, file: str, steps: list[tuple[NamedRange, list[LaunchedKernel]]]) -> MeasuredSteps:
    n, classifier = len(steps), names.classifier(trace.ranges)
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    unknown: dict[str, float] = {}
    computing_s = busy_s = 0.0
    for _, kernels in steps:
        classes = [classifier.of(kernel) for kernel in kernels]
        for kernel, name in zip(kernels, classes, strict=True):
            seconds[name] = seconds.get(name, 0.0) + kernel.duration_s / n
            counts[name] = counts.get(name, 0) + 1
            if name == UNKNOWN:
                unknown[kernel.name] = unknown.get(kernel.name, 0.0) + kernel.duration_s / n
        busy_s += covered_s((kernel.start_s, kernel.end_s) for kernel in kernels) / n
        computing = (kernel for kernel, name in zip(kernels, classes, strict=True) if name not in _BESIDE)
        computing_s += covered_s((kernel.start_s, kernel.end_s) for kernel in computing) / n
    mean = StepKernels(
        step_s=sum(marker.end_s - marker.start_s for marker, _ in steps) / n,
        computing_s=computing_s,
        exposed_s=busy_s - computing_s,
        classes={name: ClassTime(seconds=each, n_kernels=counts[name] / n) for name, each in seconds.items()},
    )
    return MeasuredSteps(
        file=file,
        rank=trace.rank,
        n_ranks=trace.n_ranks,
        markers=tuple(marker.name for marker, _ in steps),
        mean=mean,
        unknown=dict(sorted(unknown.items(), key=lambda each: -each[1])),
    )


def check_alike(steps: Sequence[MeasuredSteps]) -> None:
    """Refuse traces that are not of the same steps of different ranks.

    Raises
    ------
    ScenarioError
        Says which file.
    """
    first = steps[0]
    check_ranks([(each.rank, each.file) for each in steps])
    for each in steps[1:]:
        if [step_number(name) for name in each.markers] != [step_number(name) for name in first.markers]:
            message = f"is of {_told(each.markers)}, and {first.file} of {_told(first.markers)}"
            raise ScenarioError(message, place=Place(file=each.file), hint="give traces of the same steps")


def check_ranks(ranks: Sequence[tuple[int | None, str]]) -> None:
    """Refuse traces of which one does not say its rank, or two are of one.

    Parameters
    ----------
    ranks
        Rank and file of each trace.

    Raises
    ------
    ScenarioError
        Says which file.
    """
    nameless = next((file for rank, file in ranks if rank is None), None)
    if nameless is not None and len(ranks) > 1:
        raise ScenarioError("does not say which rank it is of", place=Place(file=nameless), hint="compare it alone")
    seen: dict[int | None, str] = {}
    for rank, file in ranks:
        if rank in seen:
            raise ScenarioError(f"is of rank {rank}, as {seen[rank]} is", place=Place(file=file), hint="give one file for each rank")
        seen[rank] = file


def step_number(name: str) -> str:
    """Return the last number in the name of a step; the name where it has none."""
    digits = re.findall(r"\d+", name)
    return digits[-1] if digits else name


def _told(markers: Sequence[str]) -> str:
    return markers[0] if len(markers) == 1 else f"{markers[0]} to {markers[-1]}"
