"""Kernels of a step by class: the classes by the names of kernels, and the steps of a trace."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from clustersim.apps.calibrate.traced import LaunchedKernel, NamedRange, TraceFile
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.profile_schema import Checked

COLLECTIVES: Final[Mapping[str, str]] = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "send_recv": "send and receive",
}
"""Class of each operation of a group; others are ``OTHER_COLLECTIVES``."""
SENDS: Final = COLLECTIVES["send_recv"]
OTHER_COLLECTIVES: Final = "other collectives"
COMMUNICATION: Final = (*COLLECTIVES.values(), OTHER_COLLECTIVES)
HOST_COPIES: Final = "host copies"
IDLE: Final = "no kernel runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """Kernels of one class in a step."""

    seconds: float
    """Sum over kernels, in seconds, whatever runs beside them."""
    n_kernels: float | None = None
    """In a step; None where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKernels:
    """Step of one rank, or the mean of several."""

    step_s: float
    computing_s: float
    """Time in which a kernel computes."""
    exposed_s: float
    """Time in which nothing computes and a kernel communicates, or copies from or to the host."""
    classes: Mapping[str, ClassTime]

    @property
    def idle_s(self) -> float:
        """Time in which no kernel runs; none where the host ran ahead, so that the kernels take longer than the step that it marked."""
        return max(0.0, self.step_s - self.computing_s - self.exposed_s)


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of what some intervals cover together.

    Examples
    --------
    >>> covered_s([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5)])
    2.5
    """
    total_s, end_s = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > end_s:
            total_s += end - max(start, end_s)
            end_s = end
    return total_s


def mean_of(steps: list[StepKernels]) -> StepKernels:
    """Return the mean over ranks."""
    n = len(steps)
    names = dict.fromkeys(name for step in steps for name in step.classes)
    classes: dict[str, ClassTime] = {}
    for name in names:
        times = [step.classes[name] for step in steps if name in step.classes]
        counts = [each.n_kernels for each in times if each.n_kernels is not None]
        classes[name] = ClassTime(
            seconds=sum(each.seconds for each in times) / n, n_kernels=sum(counts) / n if len(counts) == len(times) else None
        )
    return StepKernels(
        step_s=sum(step.step_s for step in steps) / n,
        computing_s=sum(step.computing_s for step in steps) / n,
        exposed_s=sum(step.exposed_s for step in steps) / n,
        classes=classes,
    )


Text = Annotated[str, Field(min_length=1)]
UNKNOWN = "in no class"


class ClassRow(Checked):
    """One class: the names of its kernels, and what its time follows from."""

    name: Text = Field(alias="class")
    names: list[Text] = Field(default_factory=list[str])
    within: list[Text] = Field(default_factory=list[str])
    """Named ranges of the host in which its kernels were issued."""
    constants: list[Text] = Field(default_factory=list[str])
    """Constants of a calibration; ``{precision}`` and ``{tier}`` stand for those of the run."""
    settings: list[Text] = Field(default_factory=list[str])
    """Keys of a scenario."""


class KernelNames(Checked):
    """A table of names: the rows in the order in which they are tried."""

    steps: list[Text] = Field(default_factory=list[str])
    """Names of the ranges that are steps."""
    step_ends: list[Text] = Field(default_factory=list[str])
    """Names of the ranges that end a step, where no range is one."""
    classes: list[ClassRow] = Field(default_factory=list[ClassRow])

    def row(self, name: str) -> ClassRow | None:
        """Return the row of a class that kernels have names of; of several, the first with constants or settings."""
        rows = [row for row in self.classes if row.name == name]
        return next((row for row in rows if row.constants or row.settings), rows[0] if rows else None)

    def classifier(self, ranges: Sequence[NamedRange]) -> Classifier:
        """Return the classifier of kernels of a trace with some named ranges."""
        inside = {row.name: _intervals(each for each in ranges if matches(each.name, row.within)) for row in self.classes if row.within}
        return Classifier(names=self, inside=inside)


@dataclass(slots=True, kw_only=True)
class Classifier:
    """Classes of the kernels of one trace."""

    names: KernelNames
    inside: Mapping[str, tuple[list[float], list[float]]]
    """For each class that has them, starts and ends of its ranges."""
    _by_name: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    def of(self, kernel: LaunchedKernel) -> str:
        """Return the class of a kernel."""
        place, name = self._named(kernel.collective or kernel.name)
        if kernel.launched_s is None:
            return name
        for row in self.names.classes[:place]:
            if row.name in self.inside and _within(self.inside[row.name], kernel.launched_s):
                return row.name
        return name

    def of_name(self, name: str) -> str:
        """Return the class of a name."""
        return self._named(name)[1]

    def _named(self, name: str) -> tuple[int, str]:
        """Return the place and the class of the first row that takes a name."""
        found = self._by_name.get(name)
        if found is None:
            rows = enumerate(self.names.classes)
            last = len(self.names.classes), UNKNOWN
            found = self._by_name[name] = next(((place, row.name) for place, row in rows if matches(name, row.names)), last)
        return found


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of some patterns takes a name, whatever its capitals."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def kernel_names(own: str | None = None) -> KernelNames:
    """Return the shipped table, with a file of the user's own before it."""
    shipped = _table(data_path("scenarios") / "traces" / "kernel_names.yaml")
    if own is None:
        return shipped
    first = _table(Path(own))
    return KernelNames(
        steps=first.steps + shipped.steps, step_ends=first.step_ends + shipped.step_ends, classes=first.classes + shipped.classes
    )


def _table(path: Path) -> KernelNames:
    return validate_document(KernelNames, read_document(path))


def _intervals(ranges: Iterable[NamedRange]) -> tuple[list[float], list[float]]:
    """Return starts and ends of ranges, those that overlap as one."""
    starts: list[float] = []
    ends: list[float] = []
    for each in sorted(ranges, key=lambda each: each.start_s):
        if ends and each.start_s <= ends[-1]:
            ends[-1] = max(ends[-1], each.end_s)
        else:
            starts.append(each.start_s)
            ends.append(each.end_s)
    return starts, ends


def _within(intervals: tuple[list[float], list[float]], at_s: float) -> bool:
    starts, ends = intervals
    place = bisect_right(starts, at_s) - 1
    return place >= 0 and at_s <= ends[place]


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

    A kernel belongs to the step in which the host issued it. Those before the first whose launch was recorded belong to none: the host
    had issued them before the recording began.

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
    everything = (*trace.kernels, *trace.copies)
    first_s = min((kernel.start_s for kernel in everything if kernel.launched_s is not None), default=float("-inf"))
    launched = sorted((kernel for kernel in everything if kernel.start_s >= first_s), key=_issued_s)
    issued_s = [_issued_s(kernel) for kernel in launched]
    steps: list[tuple[NamedRange, list[LaunchedKernel]]] = []
    markers = _markers(trace.ranges, names.steps) or _up_to(_markers(trace.ranges, names.step_ends), issued_s)
    for marker in markers:
        first, last = bisect_left(issued_s, marker.start_s), bisect_left(issued_s, marker.end_s)
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


def _up_to(ends: Sequence[NamedRange], issued_s: Sequence[float]) -> list[NamedRange]:
    """Return the steps between ends; before a single one, that from the first launch on."""
    from_s = [*issued_s[:1], *(each.end_s for each in ends)][len(ends) > 1 :]
    return [NamedRange(name=f"step {number}", start_s=start, end_s=end) for number, (start, end) in enumerate(pairwise(from_s), start=1)]


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
