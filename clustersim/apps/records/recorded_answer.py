"""Step times of a recorded job without stragglers, and with other durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

from clustersim.apps.calibrate.trace_file import is_trace
from clustersim.apps.records.chakra_records import is_execution_trace, read_execution_traces
from clustersim.apps.records.kineto_records import read_traces
from clustersim.apps.records.recorded_job import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    OVERLAPS,
    Duration,
    JobRecords,
    RecordedJob,
    RecordedOperation,
    check_order,
    recorded_job,
)
from clustersim.apps.records.records_file import is_records, read_records
from clustersim.apps.study.point import Point
from clustersim.apps.study.what_if_cases import parse_case
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.report.facts import percent_text
from clustersim.report.text_tables import TextAnswer, TextTable
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION: Final = 1
EVEN: Final = "even"
OVERLAP: Final = "overlap"
ALL: Final = "all"
NO_STRAGGLERS: Final = "no stragglers"
LEAST: Final = 0.001
"""Share of the step from which on a kind of operation or a stage is reported without stragglers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCase:
    """One case, and the mean of its steps."""

    name: str
    changes: Mapping[str, Data]
    step_times_s: tuple[float, ...]

    @property
    def step_time_s(self) -> float:
        """Mean over steps, in seconds."""
        return fmean(self.step_times_s)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecordedAnswer(TextAnswer):
    """A recorded job, replayed as it was and with changes."""

    file: str
    n_ranks: int
    steps: tuple[int, ...]
    recorded_s: tuple[float, ...]
    """Time of each step as it was recorded, delays of launches included; none where the records have no clock."""
    replayed: RecordedCase
    even: RecordedCase
    """Without stragglers."""
    parts: tuple[RecordedCase, ...]
    """Without the stragglers of one kind of operation or of one stage, the shortest step first."""
    asked: tuple[RecordedCase, ...]
    remarks: tuple[str, ...]
    """Gaps and assumptions."""

    def headline(self) -> str:
        """Return in one sentence what stragglers cost."""
        share = 1.0 - self.even.step_time_s / self.replayed.step_time_s
        steps = "one step" if len(self.steps) == 1 else f"mean of {len(self.steps)} steps"
        ranks = count_text(self.n_ranks, "rank")
        cost = f", which cost {percent_text(share)}" if share >= LEAST else ""
        replayed, even = _time(self.replayed.step_time_s), f"{_time(self.even.step_time_s)} without stragglers{cost}"
        if not self.recorded_s:
            return f"A step of {ranks} takes {replayed} replayed and {even}."
        return f"A step of {ranks} takes {_time(fmean(self.recorded_s))} recorded ({steps}), {replayed} replayed, and {even}."

    def tables(self) -> tuple[TextTable, ...]:
        """Return a row for each case, and remarks."""
        base_s = self.replayed.step_time_s
        told = [each for each in self.parts if abs(each.step_time_s / base_s - 1.0) >= LEAST]
        cases = (self.replayed, self.even, *told, *self.asked)
        rows = tuple((each.name, _time(each.step_time_s), _change(each.step_time_s / base_s - 1.0)) for each in cases)
        return (TextTable("", ("case", ">step", ">change"), rows, self.remarks),)

    def to_dict(self) -> dict[str, object]:
        """Return the document of ``what-if --json``."""
        cases = (self.replayed, self.even, *self.parts, *self.asked)
        base_s = self.replayed.step_time_s
        return {
            "schema_version": SCHEMA_VERSION,
            "file": self.file,
            "ranks": self.n_ranks,
            "steps": list(self.steps),
            "recorded_s": list(self.recorded_s),
            "notes": list(self.remarks),
            "cases": [
                {
                    "name": each.name,
                    "changes": dict(each.changes),
                    "step_time_s": each.step_time_s,
                    "relative": each.step_time_s / base_s - 1.0,
                    "step_times_s": list(each.step_times_s),
                }
                for each in cases
            ],
        }


FORMS: Final[Mapping[Callable[[str], bool], Callable[[Sequence[str]], JobRecords]]] = MappingProxyType(
    {is_records: read_records, is_trace: read_traces, is_execution_trace: read_execution_traces}
)
"""Readers of recorded jobs, by what recognises their files from the content."""


def recorded_files(sources: Sequence[str]) -> list[str]:
    """Return the files of a recorded job: those that are named, or all in a folder; none where they are something else."""
    files: list[str] = []
    for source in map(Path, sources):
        is_run = (source / "results.json").is_file()
        files += [str(each) for each in sorted(source.iterdir())] if source.is_dir() and not is_run else [str(source)]
    recorded = [file for file in files if any(is_it(file) for is_it in FORMS)]
    return recorded if len(recorded) == len(files) or any(Path(source).is_dir() for source in sources) else []


def answered_records(sources: Sequence[str], cases: Sequence[str] = ()) -> RecordedAnswer:
    """Return the step times of a recorded job without stragglers, and in some cases.

    Parameters
    ----------
    sources
        Its files, all of one form.
    cases
        ``name:key=value,key=value`` texts: a factor on the time of an operation, of ``compute`` or of ``communication``; ``even``
        with what has no stragglers: ``all``, one of these, or ``stage 3``; or ``overlap`` with ``none`` or ``full``.

    Raises
    ------
    ScenarioError
        When records or a case cannot be used.
    """
    source = sources[0]
    is_it = next((is_it for is_it in FORMS if is_it(source)), is_records)
    other = next((each for each in sources if not is_it(each)), None)
    if other is not None and len(sources) > 1:
        raise ScenarioError(f"is of another form than {source}", place=Place(file=other), hint="give files of one job in one form")
    job = recorded_job(FORMS[is_it](sources), Path(source).name)
    asked = [parse_case(text) for text in cases]
    for case in asked:
        _duration(job, case)
    replayed = RecordedCase(name="as recorded", changes={}, step_times_s=tuple(check_order(job, source)))
    parts = [_case(job, Point(number=0, name=f"no stragglers in {each}", values={EVEN: each})) for each in _parts(job)]
    return RecordedAnswer(
        file=source,
        n_ranks=job.n_ranks,
        steps=tuple(step.number for step in job.steps),
        recorded_s=tuple(step.recorded_s for step in job.steps if step.recorded_s is not None),
        replayed=replayed,
        even=_case(job, Point(number=0, name=NO_STRAGGLERS, values={EVEN: ALL})),
        parts=tuple(sorted(parts, key=lambda each: each.step_time_s)),
        asked=tuple(_case(job, case) for case in asked),
        remarks=job.notes,
    )


def _case(job: RecordedJob, case: Point) -> RecordedCase:
    times_s = job.step_times_s(_duration(job, case), None if case.values.get(OVERLAP) is None else str(case.values[OVERLAP]))
    return RecordedCase(name=case.name, changes=case.values, step_times_s=tuple(times_s))


def _stages(job: RecordedJob) -> list[str]:
    return [f"stage {stage}" for stage in sorted({rank_class.stage for rank_class in job.rank_classes})]


def _parts(job: RecordedJob) -> list[str]:
    stages = _stages(job)
    return [*job.kinds, *(stages if len(stages) > 1 else ())]


def _is_part(operation: RecordedOperation, part: str) -> bool:
    """Return whether an operation is of a kind, or all of it on one stage."""
    kinds = (ALL, operation.name, HOST if operation.name == HOST else COMPUTE if operation.computes else COMMUNICATION)
    return part in kinds or (len(operation.stages) == 1 and part == f"stage {operation.stages[0]}")


def _duration(job: RecordedJob, case: Point) -> Duration:
    """Return the durations of a case."""
    place = Place(file=f"--case {case.name}")
    kinds = [COMPUTE, COMMUNICATION, *job.kinds]
    factors: dict[str, float] = {}
    for key, value in case.values.items():
        if key == EVEN:
            if value not in (ALL, *kinds, *_stages(job)):
                hint = choices_hint(str(value), [ALL, *kinds, *_stages(job)])
                raise ScenarioError(f"'{value}' is no part of the job", field=key, hint=hint, place=place)
        elif key == OVERLAP:
            if value not in OVERLAPS:
                raise ScenarioError(f"'{value}' is no overlap", field=key, hint=choices_hint(str(value), list(OVERLAPS)), place=place)
        elif key not in kinds:
            raise ScenarioError(f"records have no '{key}'", field=key, hint=choices_hint(key, [EVEN, OVERLAP, *kinds]), place=place)
        elif not isinstance(value, int | float) or isinstance(value, bool) or value < 0.0:
            hint = "give a factor on its time, such as 0.5"
            raise ScenarioError(f"'{value}' is no factor", field=key, hint=hint, place=place)
        else:
            factors[key] = float(value)
    even = case.values.get(EVEN)

    def seconds(operation: RecordedOperation) -> float:
        found = job.even(operation) if even is not None and _is_part(operation, str(even)) else operation.own_s
        for part, factor in factors.items():
            found *= factor if _is_part(operation, part) else 1.0
        return found

    return seconds


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s", 4)


def _change(fraction: float) -> str:
    return "" if fraction == 0.0 else f"{100 * fraction:+.1f} %"
