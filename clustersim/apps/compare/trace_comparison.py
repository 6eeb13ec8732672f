"""A measured step beside the predicted one: kernel class by kernel class, with what would explain the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from clustersim.apps.calibrate.trace_file import read_trace
from clustersim.apps.calibrate.traced import check_device
from clustersim.apps.compare.kernel_names import (
    COMMUNICATION,
    IDLE,
    UNKNOWN,
    ClassRow,
    ClassTime,
    KernelNames,
    MeasuredSteps,
    StepKernels,
    check_alike,
    kernel_names,
    mean_of,
    measured_steps,
)
from clustersim.apps.compare.predicted_kernels import PredictedStep, predicted_step
from clustersim.apps.compare.run_directories import load_result
from clustersim.apps.run.result import Result
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.yaml_text import flat_text, plain
from clustersim.documents.csv_text import csv_text as csv_of
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.calibrations import calibration_for, constant
from clustersim.program.tasks import Collective
from clustersim.report.text_tables import NOTHING, TextAnswer, TextTable, markdown_answer, signed
from clustersim.units.quantity import format_quantity

TOLD: Final = 0.005
"""Share of the measured step from which on a difference is explained."""
OTHER_COUNT: Final = 1.25
"""Ratio of numbers of kernels from which on other work is done, rather than the same at another pace."""
WAITS: Final = "waits for other ranks"
ABSENT: Final = ClassTime(seconds=0.0)
SCHEMA_VERSION: Final = 1
N_NAMED: Final = 3
"""Kernels in no class that are named."""
_LONGEST: Final = 60
"""Characters of the name of a kernel."""
STEP_ROWS: Final = (
    ("step", "step_s"),
    ("computing", "computing_s"),
    ("exposed communication and copies", "exposed_s"),
    (IDLE, "idle_s"),
)
"""Rows of the first table, and the attributes that they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDifference:
    """One class of kernels, measured and predicted."""

    name: str
    measured: ClassTime
    predicted: ClassTime
    of_step: float
    """Predicted less measured, as a share of the measured step."""
    because: str
    """Constant or settings that would explain it; empty where it is small."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TraceComparison(TextAnswer):
    """A prediction beside the traces of one or several ranks."""

    scenario: str
    traces: tuple[MeasuredSteps, ...]
    ranks: tuple[int, ...]
    measured: StepKernels
    predicted: StepKernels
    classes: tuple[ClassDifference, ...]
    """Largest difference first."""
    unknown: Mapping[str, float]
    """Mean seconds of a step of each kernel that is in no class, longest first."""
    cautions: tuple[str, ...]

    def headline(self) -> str:
        """Return the step time, measured and predicted, in one sentence."""
        measured_s, predicted_s = self.measured.step_s, self.predicted.step_s
        markers = self.traces[0].markers
        steps = markers[0] if len(markers) == 1 else f"mean of {len(markers)} steps, {markers[0]} to {markers[-1]}"
        ranks = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"mean of {len(self.ranks)} ranks"
        change = signed(predicted_s / measured_s - 1.0)
        return f"A step takes {_time(measured_s)} measured ({ranks}, {steps}) and {_time(predicted_s)} predicted ({change})."

    def tables(self) -> tuple[TextTable, ...]:
        """Return where the step goes, the classes of kernels, and notes."""
        columns = ("", ">measured", ">predicted", ">difference of step")
        rows = [(name, *_pair(self, getattr(self.measured, key), getattr(self.predicted, key))) for name, key in STEP_ROWS]
        classes = [
            (
                each.name,
                *_pair(self, each.measured.seconds, each.predicted.seconds),
                _count(each.measured),
                _count(each.predicted),
                each.because,
            )
            for each in self.classes
        ]
        return (
            TextTable(heading="Where the step goes", columns=columns, rows=tuple(rows)),
            TextTable(
                heading="Classes of kernels and collectives, which may run beside each other",
                columns=("class", *columns[1:], ">kernels", ">predicted", "explained by"),
                rows=tuple(classes),
            ),
            TextTable("Notes", sentences=tuple(f"{note[:1].upper()}{note[1:]}." for note in self.remarks())),
        )

    def remarks(self) -> Iterator[str]:
        """Yield the remarks for a reader, line by line."""
        yield from self.cautions
        if self.unknown:
            seconds = sum(self.unknown.values())
            longest = "; ".join(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in list(self.unknown)[:N_NAMED])
            share = f"{100 * seconds / self.measured.step_s:.1f} % of the step"
            n = len(self.unknown)
            named = "name of kernels is" if n == 1 else "names of kernels are"
            yield f"{n} {named} {UNKNOWN} ({share}), longest: {longest}; add them with --names FILE"

    def markdown(self) -> str:
        """Return all of it as Markdown."""
        return markdown_answer(f"{self.scenario}, measured and predicted", [self.headline()], self.tables())

    def csv_text(self) -> str:
        """Return all of it as tidy CSV, in seconds."""
        head = ["kind", "name", "measured_s", "predicted_s", "of_step", "measured_kernels", "predicted_kernels", "explained_by"]
        step_s = self.measured.step_s
        rows: list[list[str | float | None]] = []
        for name, key in STEP_ROWS:
            measured_s, predicted_s = getattr(self.measured, key), getattr(self.predicted, key)
            rows.append(["step", name, measured_s, predicted_s, (predicted_s - measured_s) / step_s, None, None, None])
        for each in self.classes:
            times = [each.measured.seconds, each.predicted.seconds, each.of_step]
            rows.append(["class", each.name, *times, each.measured.n_kernels, each.predicted.n_kernels, each.because or None])
        return csv_of([head, *rows])

    def to_dict(self) -> dict[str, object]:
        """Return the document of ``compare --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": self.scenario,
            "traces": [
                {"file": each.file, "rank": rank, "steps": list(each.markers)} for each, rank in zip(self.traces, self.ranks, strict=True)
            ],
            "measured": _times(self.measured),
            "predicted": _times(self.predicted),
            "classes": plain(self.classes),
            "unknown_s": dict(self.unknown),
            "notes": list(self.remarks()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A run, its traces, and how they are read."""

    run: str
    traces: Sequence[str]
    overrides: Sequence[str] = ()
    device: str | None = None
    """Device of the traces as given by the user; None for that of the traces."""
    names: str | None = None
    """File of the user's own with names of kernels."""
    seed: int = 0


def compare_traces(request: TraceRequest) -> TraceComparison:
    """Return what differs between the predicted step of a run and traces of its ranks.

    Raises
    ------
    ScenarioError
        When a trace cannot be used, is of another device or of another job, or two are not of the same steps.
    """
    names = kernel_names(request.names)
    read = [read_trace(path) for path in request.traces]
    measured = [measured_steps(trace, names, path) for trace, path in zip(read, request.traces, strict=True)]
    check_alike(measured)
    result = load_result(request.run, request.overrides, seed=request.seed)
    if isinstance(result, ServingResult):
        raise ScenarioError(
            "is a serving run, whose steps no trace is compared with", place=Place(file=request.run), hint="name a run of training"
        )
    accelerator = result.built.cluster.node.accelerator
    for trace, path in zip(read, request.traces, strict=True):
        check_device(trace.devices, accelerator, said=request.device, file=path, use="simulated")
    ranks = [_rank_of(each, result) for each in measured]
    predicted = [predicted_step(result, rank) for rank in ranks]
    both = mean_of([each.mean for each in measured]), mean_of([each.mean for each in predicted])
    unknown: dict[str, float] = {}
    for each in measured:
        for name, seconds in each.unknown.items():
            unknown[name] = unknown.get(name, 0.0) + seconds / len(measured)
    return TraceComparison(
        scenario=result.metrics.scenario,
        traces=tuple(measured),
        ranks=tuple(ranks),
        measured=both[0],
        predicted=both[1],
        classes=_differences(*both, names, _Reasons(result=result, steps=predicted, rank=ranks[0], least_s=_least_s(measured, predicted))),
        unknown=dict(sorted(unknown.items(), key=lambda each: -each[1])),
        cautions=tuple(_notes(measured, both[0])),
    )


def _least_s(measured: Sequence[MeasuredSteps], predicted: Sequence[PredictedStep]) -> Mapping[str, float]:
    """Return the time of each class of collectives on the rank that has least of it, where all should have the same.

    The rank that comes last to a collective waits least; the others wait for it as much longer.
    """
    found: dict[str, float] = {}
    for name in COMMUNICATION if len(measured) > 1 else ():
        expected = {round(step.mean.classes.get(name, ABSENT).seconds, 9) for step in predicted}
        if len(expected) == 1:
            found[name] = min(each.mean.classes.get(name, ABSENT).seconds for each in measured)
    return found


def _rank_of(steps: MeasuredSteps, result: Result) -> int:
    """Return the rank of a trace; 0 where it names none."""
    place, n_ranks = Place(file=steps.file), result.built.plan.n_ranks
    if steps.n_ranks is not None and steps.n_ranks != n_ranks:
        hint = "take the scenario of the job that was traced"
        raise ScenarioError(f"is of a job of {steps.n_ranks} ranks, and the run has {n_ranks}", place=place, hint=hint)
    rank = steps.rank or 0
    if rank >= n_ranks:
        raise ScenarioError(f"is of rank {rank}, and the run has ranks 0 to {n_ranks - 1}", place=place)
    return rank


def _notes(measured: Sequence[MeasuredSteps], mean: StepKernels) -> Iterator[str]:
    if any(each.rank is None for each in measured):
        yield "the trace does not name its rank: taken as rank 0"
    if mean.computing_s + mean.exposed_s > (1.0 + TOLD) * mean.step_s:
        yield "the host ran ahead: kernels take longer than the steps that it marked; record more steps, or wait behind each"
    if any(name in mean.classes for name in COMMUNICATION):
        yield "a measured collective includes its wait for other ranks, a predicted one does not"


def _differences(measured: StepKernels, predicted: StepKernels, names: KernelNames, reasons: _Reasons) -> tuple[ClassDifference, ...]:
    found: list[ClassDifference] = []
    both = [{**step.classes, IDLE: ClassTime(seconds=step.idle_s)} for step in (measured, predicted)]
    for name in dict.fromkeys((*both[0], *both[1])):
        was, now = both[0].get(name, ABSENT), both[1].get(name, ABSENT)
        of_step = (now.seconds - was.seconds) / measured.step_s
        row = names.row(name)
        because = reasons.of(row, was, now) if row is not None and abs(of_step) >= TOLD else ""
        found.append(ClassDifference(name=name, measured=was, predicted=now, of_step=of_step, because=because))
    return tuple(sorted(found, key=lambda each: (each.name == UNKNOWN, -abs(each.of_step))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reasons:
    """Constants and settings of a run that explain a difference."""

    result: Result
    steps: Sequence[PredictedStep]
    rank: int
    least_s: Mapping[str, float]
    """Time of classes of collectives without the waits that several traces show, in seconds."""

    def of(self, row: ClassRow, measured: ClassTime, predicted: ClassTime) -> str:
        """Return the constant with the value that would explain a difference, or settings where other work was done."""
        settings = ", ".join(self._setting(name) for name in row.settings)
        if not measured.seconds or not predicted.seconds:
            absent = "not measured" if not measured.seconds else "not predicted"
            return f"{absent}: {settings}" if settings else absent
        waits = row.name in COMMUNICATION
        if settings and not waits and _is_other_work(measured, predicted):
            return f"{'more' if (measured.n_kernels or 0) > (predicted.n_kernels or 0) else 'fewer'} kernels: {settings}"
        own_s = self.least_s.get(row.name) or measured.seconds
        wanted = [self._wanted(name, predicted.seconds / own_s, row.name) for name in row.constants]
        told = [text for text in wanted if text]
        if own_s < measured.seconds:
            told.insert(0, f"{format_quantity(measured.seconds - own_s, 's', 3)} of {WAITS}")
        elif waits and row.name not in self.least_s and measured.seconds > predicted.seconds:
            told.append(WAITS)
        if row.name == IDLE or not told:
            told.append(settings)
        return (" or " if told[-1] == WAITS else ", ").join(text for text in told if text)

    def _setting(self, name: str) -> str:
        """Return a setting with the value that the run has, where it is a plain one."""
        with suppress(AttributeError):
            value = attrgetter(name)(self.result.built.plan)
            return f"{name} ({flat_text(value)} here)" if isinstance(value, bool | int | str) else name
        return name

    def _wanted(self, name: str, factor: float, class_name: str) -> str:
        """Return a share with the value that would give the measured time, which cannot be more than 1; of a time, its value."""
        calibration = calibration_for(self.result.built.cluster.node.accelerator)
        precision = self.result.built.plan.training.precision
        name = name.replace("{precision}", precision).replace("{tier}", self._tier(class_name))
        with suppress(ScenarioError):
            value = constant(calibration, name)
            if name.startswith("launch."):
                return f"{calibration.name}.{name} {format_quantity(value, 's', 3)}"
            wanted = value * factor
            text = f"{value:.3g} -> {wanted:.3g}" if wanted <= 1.0 else f"{value:.3g}, and more than 1 would be needed"
            return f"{calibration.name}.{name} {text}"
        return ""

    def _tier(self, class_name: str) -> str:
        """Return the tier of links that the group of a collective uses: that inside a node, or adapters."""
        found: list[Collective] = [step.groups[class_name] for step in self.steps if class_name in step.groups]
        size = self.result.built.cluster.node.n_accelerators
        for collective in found:
            group = next((row for row in collective.group.members if self.rank in row), collective.group.members[0])
            return "nvlink" if len({int(rank) // size for rank in group}) == 1 else "nic"
        return "nic"


def _is_other_work(measured: ClassTime, predicted: ClassTime) -> bool:
    if not measured.n_kernels or not predicted.n_kernels:
        return False
    ratio = measured.n_kernels / predicted.n_kernels
    return not 1 / OTHER_COUNT < ratio < OTHER_COUNT


def _times(step: StepKernels) -> dict[str, float]:
    return {key: getattr(step, key) for _, key in STEP_ROWS}


def _pair(found: TraceComparison, measured_s: float, predicted_s: float) -> tuple[str, str, str]:
    share = (predicted_s - measured_s) / found.measured.step_s
    return _time(measured_s), _time(predicted_s), signed(share)


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s", 3) if seconds > 0.0 else NOTHING


def _count(time: ClassTime) -> str:
    return f"{time.n_kernels:,.0f}" if time.n_kernels else NOTHING
